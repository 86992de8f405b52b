// Shared by the tests of the emulated libraries: device data, errors of results, cases that must
// abort.
#ifndef DTRAIN_EMULATOR_TEST_RIG_H
#define DTRAIN_EMULATOR_TEST_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "numbers.h"
#include "support/test.h"

using emu::number;

#define OK(call)            assert_int_equal((call), 0)
#define GIVES(status, call) assert_int_equal((call), (status))

// --- Device memory ---

static inline float random_value()
{
    static uint32_t state = 12345;
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
}

// Values on the host, rounded as the device stores them, and their device memory.
struct array {
    number type;
    std::vector<float> values; // already rounded to the type
    void *device = nullptr;

    array(number t, size_t n, bool random = true) : type(t), values(n)
    {
        std::vector<char> stored(n * emu::bytes_of(t));
        for (size_t i = 0; i < n; i++) {
            emu::store_number(stored.data(), t, i, random ? random_value() : 0.0f);
            values[i] = emu::load_number(stored.data(), t, i);
        }
        OK(cudaMalloc(&device, stored.size()));
        OK(cudaMemcpy(device, stored.data(), stored.size(), cudaMemcpyHostToDevice));
        OK(cudaStreamSynchronize(nullptr)); // the copy may return before it is done
    }
    ~array()
    {
        cudaFree(device);
    }
    array(const array &) = delete;

    std::vector<float> download() const
    {
        std::vector<char> stored(values.size() * emu::bytes_of(type));
        std::vector<float> out(values.size());
        OK(cudaMemcpy(stored.data(), device, stored.size(), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < out.size(); i++)
            out[i] = emu::load_number(stored.data(), type, i);
        return out;
    }
};

// The largest error relative to the largest value.
static inline double error_of(const std::vector<float> &got, const std::vector<double> &expected)
{
    double error = 0, largest = 1e-30;
    assert_int_equal(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); i++) {
        if (!std::isfinite(got[i]))
            return INFINITY;
        error = std::max(error, std::fabs(static_cast<double>(got[i]) - expected[i]));
        largest = std::max(largest, std::fabs(expected[i]));
    }
    return error / largest;
}

static inline double bound_of(number type, bool tf32)
{
    return type == number::bf16 ? 6e-3 : type == number::f16 || tf32 ? 8e-4 : 2e-6;
}

// --- Undefined behaviour ---

// Runs in a separate process, which must abort with the message.
struct abuse {
    const char *name, *message;
    void (*run)();
};

static inline void assert_aborts(const abuse &a)
{
    char command[256], line[512];
    std::string text;
    snprintf(command, sizeof command, "exec /proc/%d/exe %s 2>&1", static_cast<int>(getpid()),
             a.name);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out))
        text += line;
    assert_int_not_equal(pclose(out), 0);
    if (text.find(a.message) == std::string::npos)
        fail_msg("%s: no \"%s\" in: %s", a.name, a.message, text.c_str());
}

// Runs the case for which the program was started; without one all tests.
template <size_t N> static int run_tests_or_abuse(const abuse (&abuses)[N], int argc, char **argv)
{
    for (const abuse &a : abuses)
        if (argc == 2 && strcmp(argv[1], a.name) == 0) {
            a.run();
            exit(0);
        }
    return run_all_tests(nullptr, nullptr);
}

#endif
