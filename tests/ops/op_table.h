/* The cases themselves: which shapes of which op, and one cmocka test per table. */
#ifndef DTRAIN_TESTS_OP_TABLE_H
#define DTRAIN_TESTS_OP_TABLE_H

#include "op_cases.h"

/* n, c, h, w, k, kernel, stride, pad, flags, smoothing. Every distinct convolution of ResNet-50
 * v1.5 at 224 pixels. */
static const struct op_case resnet50_cases[] = {
    {1, 3, 224, 224, 64, 7, 2, 3, 0, 0},    {1, 64, 56, 56, 64, 1, 1, 0, 0, 0},
    {1, 64, 56, 56, 64, 3, 1, 1, 0, 0},     {1, 64, 56, 56, 256, 1, 1, 0, 0, 0},
    {1, 256, 56, 56, 64, 1, 1, 0, 0, 0},    {1, 256, 56, 56, 128, 1, 1, 0, 0, 0},
    {1, 128, 56, 56, 128, 3, 2, 1, 0, 0},   {1, 128, 28, 28, 512, 1, 1, 0, 0, 0},
    {1, 256, 56, 56, 512, 1, 2, 0, 0, 0},   {1, 512, 28, 28, 128, 1, 1, 0, 0, 0},
    {1, 128, 28, 28, 128, 3, 1, 1, 0, 0},   {1, 512, 28, 28, 256, 1, 1, 0, 0, 0},
    {1, 256, 28, 28, 256, 3, 2, 1, 0, 0},   {1, 256, 14, 14, 1024, 1, 1, 0, 0, 0},
    {1, 512, 28, 28, 1024, 1, 2, 0, 0, 0},  {1, 1024, 14, 14, 256, 1, 1, 0, 0, 0},
    {1, 256, 14, 14, 256, 3, 1, 1, 0, 0},   {1, 1024, 14, 14, 512, 1, 1, 0, 0, 0},
    {1, 512, 14, 14, 512, 3, 2, 1, 0, 0},   {1, 512, 7, 7, 2048, 1, 1, 0, 0, 0},
    {1, 1024, 14, 14, 2048, 1, 2, 0, 0, 0}, {1, 2048, 7, 7, 512, 1, 1, 0, 0, 0},
    {2, 512, 7, 7, 512, 3, 1, 1, 0, 0},
};

static const struct op_case conv_cases[] = {
    /* Channels that fill no block, odd sizes, every kernel size in use. */
    {2, 3, 9, 9, 16, 3, 1, 1, 0, 0},
    {2, 5, 11, 7, 17, 3, 2, 1, F_BIAS, 0},
    {2, 17, 13, 13, 5, 3, 1, 0, F_BIAS, 0},
    {1, 20, 10, 12, 20, 3, 2, 0, 0, 0},
    {2, 20, 15, 15, 33, 1, 1, 0, F_BIAS, 0},
    {3, 16, 15, 15, 32, 1, 2, 0, 0, 0},
    {2, 17, 9, 9, 3, 1, 2, 0, 0, 0},
    {2, 6, 14, 14, 16, 5, 1, 2, F_BIAS, 0},
    {1, 3, 63, 63, 64, 11, 4, 2, F_BIAS, 0},
    {1, 64, 7, 7, 192, 5, 1, 2, F_BIAS, 0},
    {1, 3, 32, 32, 16, 3, 1, 1, 0, 0},
    {2, 16, 32, 32, 32, 3, 2, 1, 0, 0},
    {1, 1, 5, 5, 1, 3, 1, 1, F_BIAS, 0},
    {4, 8, 1, 1, 12, 1, 1, 0, F_BIAS, 0},
    {2, 16, 3, 3, 16, 3, 1, 0, 0, 0},
    /* Fused ReLU. */
    {2, 3, 12, 12, 16, 3, 1, 1, F_BIAS | F_RELU, 0},
    {2, 17, 11, 11, 20, 3, 2, 1, F_RELU, 0},
    {1, 64, 14, 14, 64, 3, 1, 1, F_BIAS | F_RELU, 0},
    {1, 3, 63, 63, 64, 11, 4, 2, F_BIAS | F_RELU, 0},
    /* Evaluation: forward alone. */
    {2, 3, 33, 33, 64, 7, 2, 3, F_EVAL, 0},
    {3, 17, 8, 8, 20, 3, 1, 1, F_BIAS | F_RELU | F_EVAL, 0},
};

/* 3x3 convolutions with many channels and images: those of ResNet-20 at 32 pixels and of ResNet-18
 * at 224, and some whose tiles of 4x4 and blocks of channels do not come out even. */
static const struct op_case winograd_cases[] = {
    {128, 32, 16, 16, 32, 3, 1, 1, 0, 0},
    {128, 64, 8, 8, 64, 3, 1, 1, 0, 0},
    {16, 64, 56, 56, 64, 3, 1, 1, 0, 0},
    {16, 128, 28, 28, 128, 3, 1, 1, 0, 0},
    {16, 256, 14, 14, 256, 3, 1, 1, 0, 0},
    {16, 512, 7, 7, 512, 3, 1, 1, 0, 0},
    {6, 64, 13, 15, 48, 3, 1, 1, F_BIAS, 0},
    {8, 33, 20, 18, 40, 3, 1, 1, F_BIAS, 0},
    {4, 64, 28, 28, 64, 3, 1, 1, F_BIAS | F_RELU, 0},
    {5, 32, 19, 30, 64, 3, 1, 1, F_BIAS | F_RELU | F_EVAL, 0},
};

static const struct op_case bn_cases[] = {
    {2, 1, 5, 5, 0, 0, 0, 0, 0, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, 0, 0},
    {4, 16, 6, 6, 0, 0, 0, 0, 0, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, 0, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, 0, 0},
    {2, 2048, 7, 7, 0, 0, 0, 0, 0, 0},
    {8, 16, 1, 1, 0, 0, 0, 0, 0, 0},
    {16, 3, 1, 1, 0, 0, 0, 0, 0, 0},
    {1, 64, 56, 56, 0, 0, 0, 0, 0, 0},
    {2, 1, 5, 5, 0, 0, 0, 0, F_RELU, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_RELU, 0},
    {4, 16, 6, 6, 0, 0, 0, 0, F_RELU, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_RELU, 0},
    {1, 33, 7, 7, 0, 0, 0, 0, F_RELU, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {4, 16, 6, 6, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_RELU | F_RESIDUAL, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_TWO, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_TWO, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU | F_TWO, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_RELU | F_TWO, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_RELU | F_RESIDUAL | F_TWO, 0},
    {3, 20, 7, 5, 0, 0, 0, 0, F_RELU | F_RESIDUAL | F_TWO, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_RELU | F_RESIDUAL | F_TWO, 0},
    {2, 3, 4, 4, 0, 0, 0, 0, F_EVAL, 0},
    {1, 16, 1, 1, 0, 0, 0, 0, F_EVAL, 0},
    {2, 20, 7, 5, 0, 0, 0, 0, F_EVAL, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_EVAL | F_RELU, 0},
    {3, 17, 5, 5, 0, 0, 0, 0, F_EVAL | F_RELU, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, F_EVAL | F_RELU | F_RESIDUAL, 0},
    {3, 17, 5, 5, 0, 0, 0, 0, F_EVAL | F_RELU | F_RESIDUAL, 0},
};

static const struct op_case relu_cases[] = {
    {1, 1, 1, 1, 0, 0, 0, 0, 0, 0},      {2, 3, 5, 7, 0, 0, 0, 0, 0, 0},
    {2, 64, 14, 14, 0, 0, 0, 0, 0, 0},   {4, 4096, 1, 1, 0, 0, 0, 0, 0, 0},
    {2, 3, 5, 7, 0, 0, 0, 0, F_TWO, 0},  {2, 64, 28, 28, 0, 0, 0, 0, F_TWO, 0},
    {3, 17, 9, 9, 0, 0, 0, 0, F_TWO, 0},
};

static const struct op_case add_cases[] = {
    {1, 1, 1, 1, 0, 0, 0, 0, 0, 0},          {3, 17, 5, 7, 0, 0, 0, 0, 0, 0},
    {2, 256, 14, 14, 0, 0, 0, 0, 0, 0},      {3, 17, 5, 7, 0, 0, 0, 0, F_RELU, 0},
    {2, 256, 28, 28, 0, 0, 0, 0, F_RELU, 0}, {2, 20, 3, 3, 0, 0, 0, 0, F_RELU, 0},
};

static const struct op_case max_pool_cases[] = {
    {2, 16, 8, 8, 0, 2, 2, 0, 0, 0},        {2, 5, 9, 7, 0, 2, 2, 0, 0, 0},
    {2, 16, 12, 12, 0, 3, 2, 1, 0, 0},      {2, 17, 11, 13, 0, 3, 2, 1, 0, 0},
    {1, 64, 112, 112, 0, 3, 2, 1, 0, 0},    {2, 3, 15, 15, 0, 3, 2, 0, 0, 0},
    {1, 20, 6, 6, 0, 3, 1, 1, 0, 0},        {2, 512, 2, 2, 0, 2, 2, 0, 0, 0},
    {2, 20, 13, 13, 0, 3, 2, 0, F_EVAL, 0}, {2, 16, 12, 12, 0, 3, 2, 1, F_EVAL, 0},
};

/* k: output size. */
static const struct op_case avg_pool_cases[] = {
    {2, 2048, 7, 7, 1, 0, 0, 0, 0, 0}, {3, 17, 8, 8, 1, 0, 0, 0, 0, 0},
    {2, 64, 4, 6, 1, 0, 0, 0, 0, 0},   {1, 3, 1, 1, 1, 0, 0, 0, 0, 0},
    {2, 20, 7, 7, 7, 0, 0, 0, 0, 0},   {2, 20, 8, 8, 7, 0, 0, 0, 0, 0},
    {2, 16, 10, 10, 7, 0, 0, 0, 0, 0}, {2, 16, 14, 14, 7, 0, 0, 0, 0, 0},
    {2, 20, 3, 3, 7, 0, 0, 0, 0, 0},   {1, 512, 1, 1, 7, 0, 0, 0, 0, 0},
    {2, 5, 6, 13, 6, 0, 0, 0, 0, 0},
};

static const struct op_case linear_cases[] = {
    {2, 2048, 1, 1, 1000, 0, 0, 0, 0, 0}, {3, 64, 1, 1, 10, 0, 0, 0, 0, 0},
    {2, 64, 7, 7, 96, 0, 0, 0, 0, 0},     {3, 17, 3, 5, 20, 0, 0, 0, 0, 0},
    {4, 3, 4, 4, 5, 0, 0, 0, 0, 0},       {1, 20, 6, 6, 33, 0, 0, 0, 0, 0},
    {5, 7, 1, 1, 1, 0, 0, 0, 0, 0},       {2, 512, 1, 1, 256, 0, 0, 0, 0, 0},
};

static const struct op_case softmax_xent_cases[] = {
    {4, 2, 1, 1, 0, 0, 0, 0, 0, 0},
    {16, 10, 1, 1, 0, 0, 0, 0, 0, 0},
    {16, 10, 1, 1, 0, 0, 0, 0, F_IGNORE, 0.1},
    {8, 1000, 1, 1, 0, 0, 0, 0, F_IGNORE, 0.1},
    {7, 1000, 1, 1, 0, 0, 0, 0, 0, 0},
    {5, 4, 1, 1, 0, 0, 0, 0, F_IGNORE, 0.2},
    {1, 17, 1, 1, 0, 0, 0, 0, 0, 0.05},
    {33, 10, 1, 1, 0, 0, 0, 0, F_EVAL | F_IGNORE, 0.1},
    {3, 1000, 1, 1, 0, 0, 0, 0, F_EVAL, 0},
    /* With few classes some rows have the same label twice. */
    {15, 2, 1, 1, 0, 0, 0, 0, F_MIXED, 0},
    {33, 3, 1, 1, 0, 0, 0, 0, F_MIXED | F_IGNORE, 0.1},
    {7, 1000, 1, 1, 0, 0, 0, 0, F_MIXED, 0.1},
    {21, 17, 1, 1, 0, 0, 0, 0, F_MIXED | F_IGNORE, 0},
    {9, 10, 1, 1, 0, 0, 0, 0, F_MIXED | F_EVAL, 0.1},
};

static const struct op_case ingest_cases[] = {
    {1, 3, 224, 224, 0, 0, 0, 0, 0, 0},
    {5, 3, 7, 7, 0, 0, 0, 0, 0, 0},
    {2, 3, 32, 32, 0, 0, 0, 0, F_EVAL, 0},
    {1, 3, 1, 1, 0, 0, 0, 0, 0, 0},
};

#define OP_TEST(name, build, copy)                                                   \
    static void test_##name(void **state)                                            \
    {                                                                                \
        run_cases(*state, #name, build, copy, name##_cases, DT_COUNT(name##_cases)); \
    }
OP_TEST(resnet50, build_conv, false)
OP_TEST(conv, build_conv, true)
OP_TEST(bn, build_bn, true)
OP_TEST(relu, build_relu, true)
OP_TEST(add, build_add, true)
OP_TEST(max_pool, build_max_pool, true)
OP_TEST(avg_pool, build_avg_pool, true)
OP_TEST(linear, build_linear, true)
OP_TEST(softmax_xent, build_softmax_xent, false)
OP_TEST(ingest, build_ingest, false)

/* The same bounds; all other tests run without Winograd. */
static void test_winograd(void **state)
{
    struct suite *suite = *state;
    suite->options.winograd = true;
    run_cases(suite, "winograd", build_conv, false, winograd_cases, DT_COUNT(winograd_cases));
    suite->options.winograd = false;
}

#endif
