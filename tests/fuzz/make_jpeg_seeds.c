/* Seeds for fuzz_jpeg, small pictures of every kind, intact and damaged: make_jpeg_seeds FOLDER. */
#include "jpeg_make.h"

enum { SIDE = 16 };

static void save(const char *folder, const char *name, const struct file *file)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *c = path + strlen(folder) + 1; *c; c++)
        if (strchr(" :,/", *c))
            *c = '-';
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(file->data, 1, file->bytes, out) != file->bytes || fclose(out) != 0)
        abort();
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 1;
    for (int i = 0; i < N_JPEG_KINDS; i++) {
        struct jpeg_kind kind = jpeg_kinds[i];
        kind.width = kind.width < SIDE ? kind.width : SIDE;
        kind.height = kind.height < SIDE ? kind.height : SIDE;
        struct file file = jpeg_make(&kind);
        save(argv[1], kind.name, &file);
        free(file.data);
    }
    for (int i = 0; i < N_BAD_FILES; i++) {
        struct file file = bad_file_make(&bad_files[i]);
        char name[64];
        snprintf(name, sizeof name, "bad-%s", bad_files[i].name);
        if (file.bytes <= 4096)
            save(argv[1], name, &file);
        free(file.data);
    }
    return 0;
}
