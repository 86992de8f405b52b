/* The tables of sub-commands and options, and command lines read by them. */
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "test.h"

enum { MAX_WORDS = 8 };

/* `line`: words with one blank between them. */
static dt_status parse(struct dt_arguments *args, char *line)
{
    static char program[] = "dtrain";
    char *argv[MAX_WORDS + 2] = {program};
    int argc = 1;
    for (; *line; argv[argc++] = line, line += strlen(line) + 1)
        line[strcspn(line, " ")] = '\0';
    argv[argc] = NULL;
    optind = 0; /* a new start for getopt */
    dt_status status = dt_arguments_parse(args, argc, argv);
    args->operands = NULL; /* argv ends here */
    return status;
}

static dt_status parse_words(struct dt_arguments *args, const char *words)
{
    char line[128] = "";
    size_t bytes = strlen(words);
    assert_true(bytes + 2 < sizeof line);
    memcpy(line, words, bytes);
    return parse(args, line);
}

TEST(tables)
{
    for (size_t c = 0; c < dt_n_commands; c++) {
        const struct dt_command *command = &dt_commands[c];
        int n = 0;
        assert_true(command->run || command->run_on_ranks);
        for (; n < DT_COMMAND_OPTIONS && command->options[n]; n++) {
            const struct dt_option *option = dt_option_find(command->options[n], command->name);
            if (!option)
                fail_msg("dtrain %s: no option %s", command->name, command->options[n]);
            assert_true(n >= command->n_required || option->kind == DT_OPTION_TEXT);
        }
        assert_true(n >= command->n_required);
        assert_ptr_equal(dt_command_find(command->name), command);
    }
}

TEST(commands)
{
    static const struct {
        const char *words, *command;
        bool named, help;
        int n_operands;
    } rows[] = {
        {"--config x", "train", false, false, 0},
        {"train --config x", "train", true, false, 0},
        {"help", "train", false, true, 0},
        {"help eval", "eval", true, true, 0},
        {"eval help", "eval", true, true, 0},
        {"eval -h", "eval", true, true, 0},
        {"-h", "train", false, true, 0},
        {"shard --help", "shard", true, true, 0},
        {"shard a b", "shard", true, false, 2},
        {"shard --threads 2 a b", "shard", true, false, 2},
        {"config help", "config", true, false, 1},
        {"config help train.lr", "config", true, false, 2},
        {"help train.epochs", "config", true, false, 2},
        {"config -h", "config", true, true, 0},
        {"models", "models", true, false, 0},
    };
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        struct dt_arguments args;
        if (parse_words(&args, rows[i].words) != DT_OK)
            fail_msg("%s: %s", rows[i].words, dt_error_text());
        assert_string_equal(args.command->name, rows[i].command);
        assert_int_equal(args.named, rows[i].named);
        assert_int_equal(args.help, rows[i].help);
        assert_int_equal(args.n_operands, rows[i].n_operands);
        dt_arguments_reset(&args);
    }
}

/* Each topic that the help names has text, without marks for the pages' readers. */
TEST(topics)
{
    static const char *const names[] = {"resume", "data",    "precision",
                                        "ranks",  "metrics", "exit-codes"};
    for (size_t i = 0; i < DT_COUNT(names); i++) {
        char *text = NULL, *words[] = {"dtrain", "help", (char *)names[i]};
        size_t bytes;
        struct dt_arguments args;
        assert_int_equal(dt_arguments_parse(&args, 3, words), DT_OK);
        FILE *out = open_memstream(&text, &bytes);
        assert_true(dt_topic_print(out, args.topic));
        fclose(out);
        assert_true(bytes > 300);
        assert_null(strstr(text, "<!--"));
        assert_null(strstr(text, "](")); /* no links */
        free(text);
        dt_arguments_reset(&args);
    }
    assert_false(dt_topic_print(NULL, "nothing"));
}

TEST(values)
{
    struct dt_arguments args;
    assert_int_equal(parse_words(&args, "--config x --max-time 1h30m --set a=1 --set b=2"), DT_OK);
    assert_true(args.train.max_time_s == 5400);
    assert_int_equal(args.n_sets, 2);
    assert_string_equal(args.train.resume, "auto");
    dt_arguments_reset(&args);
    assert_int_equal(parse_words(&args, "--config x --max-time 0.5d --dry-run"), DT_OK);
    assert_true(args.train.max_time_s == 43200);
    assert_string_equal(args.dry_run, "");
    dt_arguments_reset(&args);
    assert_int_equal(parse_words(&args, "verify x"), DT_OK);
    assert_int_equal(args.decode, -1);
    dt_arguments_reset(&args);
    assert_int_equal(parse_words(&args, "verify x --decode 5"), DT_OK);
    assert_int_equal(args.decode, 5);
    dt_arguments_reset(&args);
    assert_int_equal(parse_words(&args, "verify x --decode all"), DT_OK);
    assert_int_equal(args.decode, -1);
    dt_arguments_reset(&args);
    assert_int_equal(parse_words(&args, "shard a b --quality 80 --seed 4294967297"), DT_OK);
    assert_true(args.shard.quality == 80 && args.shard.seed == (UINT64_C(1) << 32) + 1);
    assert_true(args.shard.per_shard == 1000 && args.shard.label_offset == 1);
    assert_true(args.predict.min_score == 0.3 && args.size == 64 && args.port == -1);
    dt_arguments_reset(&args);
}

TEST(wrong_lines)
{
    static const struct {
        const char *words, *text;
    } rows[] = {
        {"trian", "did you mean train?"},
        {"help trian", "did you mean train?"},
        {"help exit", "unknown command"},
        {"shapes x", "did you mean demo-data?"},
        {"plan --ranks 8", "did you mean forecast?"},
        {"--confg x", "did you mean --config"},
        {"train --max-tine=2h --config x", "did you mean --max-time"},
        {"", "needs --config FILE, or --set"},
        {"--config", "--config requires a value"},
        {"config show --set", "--set requires a value"},
        {"--config x --resume=", "--resume: the value is empty"},
        {"--config x --out=", "--out: the value is empty"},
        {"eval --config x --weights=", "--weights: the value is empty"},
        {"verify x --decode some", "--decode: \"some\" is not an integer in 0..2147483647"},
        {"shard a b --per-shard 0", "not an integer"},
        {"demo-data x --size 12cm", "not an integer"},
        {"--config x --max-time 0", "not a time"},
        {"--config x --max-time 3w", "not a time"},
        {"--config x --max-time -5s", "not a time"},
        {"--config x again", "again: unexpected argument"},
        {"train a/x.json", "did you mean --config a/x.json?"},
        {"a/x.json", "a/x.json: unknown command; did you mean --config a/x.json?"},
        {"shard a", "dtrain shard needs SRC DST"},
        {"shard a b c", "c: unexpected argument"},
        {"predict", "dtrain predict needs"},
        {"config", "dtrain config needs show|new|schema|help"},
        {"-h --foo", "--foo: dtrain train has no such option"},
        {"-hx", "-hx: dtrain train has no such option"},
        {"-x", "-x: dtrain train has no such option"},
        {"-help", "did you mean --help"},
        {"-config x", "-config: dtrain train has no such option; did you mean --config"},
        {"shard a b -s", "-s: dtrain shard has no such option"},
        {"shard a b --lr 1", "--lr: dtrain shard has no such option; see dtrain shard --help"},
        {"eval --config x --weights x --dry-run", "--dry-run: dtrain eval has no such option"},
        {"--batch-size=32", "--batch-size=32: dtrain train has no such option; use --set train."},
        {"-b 32", "use --set train.global_batch_size=..."},
        {"eval --lr=0.1", "use --set schedule.lr=..."},
        {"--amp", "use --set train.precision=fp16 (or bf16)"},
        {"--pretrained", "use --set model.initial_checkpoint=FILE"},
        {"eval --config x", "dtrain eval needs a run folder, or --weights PATH"},
    };
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        struct dt_arguments args;
        if (parse_words(&args, rows[i].words) != DT_ERR_USAGE ||
            !strstr(dt_error_text(), rows[i].text))
            fail_msg("%s: %s", rows[i].words, dt_error_text());
        dt_arguments_reset(&args);
    }
}

TEST_MAIN(NULL, NULL)
