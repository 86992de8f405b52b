/* Small pictures of every kind, intact and damaged: make_jpeg_seeds FOLDER [SIDE] writes them and
 * prints a line for each: its name, and for damaged ones a tab and what the refusal says. */
#include "jpeg_make.h"

static void save(const char *folder, const char *name, const char *reason, struct file file)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *c = path + strlen(folder) + 1; *c; c++)
        if (strchr(" :,/", *c))
            *c = '-';
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(file.data, 1, file.bytes, out) != file.bytes || fclose(out) != 0)
        abort();
    printf("%s\t%s\n", strrchr(path, '/') + 1, reason);
    free(file.data);
}

static void save_kinds(const char *folder, const struct jpeg_kind *kinds, size_t n, int side)
{
    for (size_t i = 0; i < n; i++) {
        struct jpeg_kind kind = kinds[i];
        kind.width = kind.width < side ? kind.width : side;
        kind.height = kind.height < side ? kind.height : side;
        save(folder, kind.name, "", jpeg_make(&kind));
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    const int side = argc > 2 ? atoi(argv[2]) : 16;
    save_kinds(argv[1], jpeg_kinds, N_JPEG_KINDS, side);
    save_kinds(argv[1], jpeg_layouts, sizeof jpeg_layouts / sizeof *jpeg_layouts, side);
    for (int i = 0; i < N_BAD_FILES; i++) {
        char name[64];
        snprintf(name, sizeof name, "bad-%s", bad_files[i].name);
        save(argv[1], name, bad_files[i].reason, bad_file_make(&bad_files[i]));
    }
    return 0;
}
