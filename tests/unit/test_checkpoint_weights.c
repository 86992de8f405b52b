/* Weights of other programs into a small network: types, prefixes of the names, layers that fit by
 * half. */
#include "base/mem.h"
#include "capture.h"
#include "checkpoint/weights.h"
#include "checkpoint_rig.h"

/* How the file differs from the network; `odd` is a tensor, and what is done with it follows. */
struct made {
    const char *prefix, *dtype, *odd, *odd_dtype;
    bool is_lost, is_transposed;
};

static bool is_saved(const struct dt_tensor *t)
{
    return t->role == DT_PARAM || t->role == DT_STAT;
}

static size_t put_value(char *at, const char *dtype, float value)
{
    if (strcmp(dtype, "F64") == 0)
        return memcpy(at, &(double){(double)value}, 8), 8;
    if (strcmp(dtype, "F32") == 0)
        return memcpy(at, &value, 4), 4;
    return memcpy(at, &(int64_t){3}, 8), 8;
}

/* Element e of tensor t is t + e / 4. */
static const char *make_file(const struct rig *r, const struct made *made)
{
    static char header[4096], data[16384];
    size_t n_header = 8, n_data = 0;
    for (int t = 0; t < r->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &r->graph->tensor[t];
        const bool is_odd = made->odd && strcmp(tensor->name, made->odd) == 0;
        const char *dtype = is_odd && made->odd_dtype ? made->odd_dtype : made->dtype;
        const size_t begin = n_data;
        if (!is_saved(tensor) || (is_odd && made->is_lost))
            continue;
        for (size_t e = 0; e < dt_tensor_elements(tensor); e++)
            n_data += put_value(data + n_data, dtype, (float)t + (float)e / 4);
        n_header += (size_t)snprintf(header + n_header, sizeof header - n_header,
                                     "%c\"%s%s\":{\"dtype\":\"%s\",\"shape\":[",
                                     n_header > 8 ? ',' : '{', made->prefix, tensor->name, dtype);
        for (int i = 0; i < tensor->n_dims; i++) {
            const int from = is_odd && made->is_transposed ? tensor->n_dims - 1 - i : i;
            n_header += (size_t)snprintf(header + n_header, sizeof header - n_header, "%s%d",
                                         i ? "," : "", tensor->dim[from]);
        }
        n_header += (size_t)snprintf(header + n_header, sizeof header - n_header,
                                     "],\"data_offsets\":[%zu,%zu]}", begin, n_data);
    }
    header[n_header++] = '}';
    memcpy(header, &(uint64_t){n_header - 8}, 8);
    FILE *file = fopen(rig_path(r->parent, "x.safetensors"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 1, n_header, file), n_header);
    assert_int_equal(fwrite(data, 1, n_data, file), n_data);
    assert_int_equal(fclose(file), 0);
    return rig_path(r->parent, "x.safetensors");
}

/* What is loaded, and what was said. */
static dt_status load(struct rig *r, const struct made *made, char text[DT_WEIGHTS_TEXT],
                      char said[1024])
{
    static const struct dt_model model = {.name = "x", .head = "fc"};
    const char *path = make_file(r, made);
    struct capture capture = capture_begin(stderr);
    ok(dt_plan_init_params(r->plan, 1));
    const dt_status status = dt_weights_load(r->plan, path, &model, true, text);
    capture_end(&capture, said, 1024);
    return status;
}

/* Whether the tensors have the file's values; those of the head only with `has_head`. */
static void check_values(struct rig *r, bool has_head)
{
    float values[256];
    for (int t = 0; t < r->graph->n_tensors; t++) {
        const struct dt_tensor *tensor = &r->graph->tensor[t];
        if (!is_saved(tensor))
            continue;
        const bool is_head = strncmp(tensor->name, "fc", 2) == 0;
        ok(dt_plan_get(r->plan, r->plan->place[t].arena, t, values));
        for (size_t e = 0; e < dt_tensor_elements(tensor); e++)
            if ((values[e] == (float)t + (float)e / 4) != (has_head || !is_head))
                fail_msg("element %zu of %s is %g", e, tensor->name, (double)values[e]);
    }
}

RIG_TEST(types_and_prefixes)
{
    static const struct made cases[] = {
        {"", "F64", NULL, NULL, false, false},
        {"", "F32", "bn1.running_var", "F64", false, false},
        {"_orig_mod.", "F32", NULL, NULL, false, false},
        {"model.backbone.", "F32", NULL, NULL, false, false},
        {"module._orig_mod.", "F64", NULL, NULL, false, false},
        {"a net.x.", "F32", NULL, NULL, false, false},
    };
    char text[DT_WEIGHTS_TEXT], said[1024], line[128];
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        ok(load(r, &cases[i], text, said));
        check_values(r, true);
        snprintf(line, sizeof line, "all names begin with \"%s\", which is omitted",
                 cases[i].prefix);
        assert_true((strstr(said, line) != NULL) == (cases[i].prefix[0] != '\0'));
        assert_non_null(strstr(text, "7 of 7 tensors"));
    }
}

RIG_TEST(half_a_head)
{
    static const struct made cases[] = {
        {"", "F32", "fc.weight", NULL, false, true},
        {"model.", "F64", "fc.weight", NULL, false, true},
        {"", "F32", "fc.weight", NULL, true, false},
        {"", "F32", "fc.bias", NULL, true, false},
    };
    char text[DT_WEIGHTS_TEXT], said[1024], line[128];
    for (size_t i = 0; i < DT_COUNT(cases); i++) {
        const char *odd = cases[i].odd;
        ok(load(r, &cases[i], text, said));
        check_values(r, false);
        snprintf(line, sizeof line, "%s fits, but %s does not, so neither is taken",
                 strcmp(odd, "fc.bias") == 0 ? "fc.weight" : "fc.bias", odd);
        assert_non_null(strstr(said, line));
        assert_non_null(strstr(text, "5 of 7 tensors"));
        assert_non_null(strstr(text, strcmp(odd, "fc.bias") == 0 ? "fc new (3 classes)"
                                                                 : "fc new (3 -> 3 classes)"));
    }
}

RIG_TEST(refused)
{
    static const struct {
        struct made made;
        dt_status status;
        const char *message;
    } cases[] = {
        {{"", "F32", "conv1.weight", "I64", false, false},
         DT_ERR_CONFIG,
         "conv1.weight holds integers (I64), but weights are floating-point numbers"},
        {{"", "F32", "fc.bias", "I64", false, false},
         DT_ERR_CONFIG,
         "fc.bias holds integers (I64)"},
        {{"", "F32", "conv1.weight", "I32", false, false},
         DT_ERR_DATA,
         "\"conv1.weight\" has dtype I32; F32, F16, BF16, F64, I64 can be read"},
        {{"module.", "F32", "conv1.weight", NULL, false, true},
         DT_ERR_CONFIG,
         "size mismatch for conv1.weight: copying a param with shape [3, 3, 3, 5]"},
        {{"module.", "F32", "bn1.weight", NULL, true, false},
         DT_ERR_CONFIG,
         "Missing key(s) in state_dict: \"bn1.weight\"."},
    };
    char text[DT_WEIGHTS_TEXT], said[1024];
    for (size_t i = 0; i < DT_COUNT(cases); i++)
        assert_error(load(r, &cases[i].made, text, said), cases[i].status, cases[i].message);
}

TEST_MAIN(NULL, NULL)
