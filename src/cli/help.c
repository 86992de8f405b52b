/* Help texts, generated from the tables of sub-commands and options. */
#include <stdio.h>

#include "cli/commands.h"
#include "cli/options.h"

static void print_option(const char *name)
{
    const struct dt_option *row = dt_option_find(name);
    bool apart = row->value && row->value[0] != '[';
    int n = printf("    --%s%s%s", row->name, apart ? " " : "", row->value ? row->value : "");
    printf("%*s%s\n", n < 26 ? 26 - n : 1, "", row->help);
}

static void print_command(const struct dt_command *command)
{
    printf("  dtrain %s%s%s%s\n    %s\n", command->name, command->operands[0] ? " " : "",
           command->operands, command->options[0] ? " [options]" : "", command->summary);
    for (int i = 0; i < DT_COMMAND_OPTIONS && command->options[i]; i++)
        print_option(command->options[i]);
}

void dt_help_print(const struct dt_command *command)
{
    if (command) {
        printf("usage:\n");
        print_command(command);
        return;
    }
    printf("Train convolutional networks data-parallel on CPUs and GPUs.\n\nusage:\n");
    for (size_t i = 0; i < dt_n_commands; i++)
        print_command(&dt_commands[i]);
    printf(
        "  dtrain --help | --version\n"
        "  dtrain COMMAND --help\n\n"
        "Start several ranks with MPI: mpirun -np 2 --bind-to none dtrain --config FILE\n\n"
        "Environment:\n"
        "  DTRAIN_DEBUG=1           print more messages, and where an error was raised\n"
        "  DTRAIN_FAULT=stop@100:1  inject a fault, here: stop rank 1 at step 100\n\n"
        "Exit codes: 0 done, 64 usage, 65 bad data, 66 input missing, 69 device, 70 internal,\n"
        "  71 memory, 73 cannot create output, 74 I/O, 75 stopped with a checkpoint (run again),\n"
        "  76 ranks disagree, or slower than bench --compare accepts, 77 permission,\n"
        "  78 configuration, 80 hang, 81 numerical, 82 weights differ between ranks,\n"
        "  83 no checkpoint, 84 run folder in use.\n");
}
