/* Weights in the formats of other programs, which people give where a safetensors file belongs. */
#include <stdbool.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/checkpoint_internal.h"

enum { HEAD_BYTES = 512 };

#define BY_NAME \
    "load it where it was made and save the weights as safetensors, with torchvision's names"

/* The first row that matches decides. */
static const struct {
    int at;            /* of `magic` */
    const char *magic; /* "" = any; "?" stands for any byte */
    const char *holds; /* within the first bytes, "" = anything */
    const char *what, *advice;
} kinds[] = {
    {0, "PK\3\4", "data.pkl", "a file of PyTorch (torch.save)", NULL},
    {0, "PK\3\4", ".npy", "NumPy's .npz archive", BY_NAME},
    {0, "PK\3\4", "metadata.json", "a model of Keras", BY_NAME},
    {0, "PK\3\4", "", "a zip archive",
     "if PyTorch saved it, convert it with "
     "scripts/to_safetensors.py; otherwise unpack it"},
    {0, "\x80\2", "", "a pickle of Python, as PyTorch saves weights", NULL},
    {0, "\x80\3", "", "a pickle of Python, as PyTorch saves weights", NULL},
    {0, "\x80\4", "", "a pickle of Python, as PyTorch saves weights", NULL},
    {0, "\x80\5", "", "a pickle of Python, as PyTorch saves weights", NULL},
    {0, "\x89HDF\r\n\x1a\n", "", "an HDF5 file, as Keras saves models", BY_NAME},
    {0, "\x93NUMPY", "", "NumPy's array file", BY_NAME},
    {0, "\b?\x12", "", "a model in ONNX", BY_NAME},
    {0, "\b?:", "", "a model in ONNX", BY_NAME},
    {0, "\x1f\x8b", "", "compressed with gzip", "unpack it"},
    {257, "ustar", "", "a tar archive", "unpack it and give the file with the weights"},
    {0, "version https://git-lfs", "", "a pointer of git-lfs, not the file itself",
     "get it with git lfs pull"},
    {0, "<", "html", "a web page", "download the file itself"},
    {0, "<", "HTML", "a web page", "download the file itself"},
};

static bool matches(const char *head, size_t bytes, size_t at, const char *magic)
{
    size_t n = strlen(magic);
    for (size_t i = 0; i < n; i++)
        if (at + i >= bytes || (magic[i] != '?' && head[at + i] != magic[i]))
            return false;
    return true;
}

static bool contains(const char *head, size_t bytes, const char *text)
{
    for (size_t at = 0; at < bytes; at++)
        if (matches(head, bytes, at, text))
            return true;
    return false;
}

dt_status dt_foreign_refuse(int fd, uint64_t file_bytes, const char *path)
{
    char head[HEAD_BYTES];
    size_t bytes = file_bytes < HEAD_BYTES ? (size_t)file_bytes : HEAD_BYTES, i = 0;
    const char *base = dt_file_base(path), *dot = strrchr(base, '.');
    const int n_stem = (int)((dot > base ? dot : path + strlen(path)) - path);
    DT_TRY(dt_file_pread(fd, head, bytes, 0, path));
    while (i < DT_COUNT(kinds) && !(matches(head, bytes, (size_t)kinds[i].at, kinds[i].magic) &&
                                    contains(head, bytes, kinds[i].holds)))
        i++;
    if (i == DT_COUNT(kinds))
        DT_FAIL(DT_ERR_DATA,
                "%s is not a safetensors file: it does not begin with the length of a header; "
                "scripts/to_safetensors.py converts files of PyTorch",
                path);
    if (kinds[i].advice)
        DT_FAIL(DT_ERR_DATA, "%s is %s, not a safetensors file: %s", path, kinds[i].what,
                kinds[i].advice);
    DT_FAIL(DT_ERR_DATA,
            "%s is %s, not a safetensors file: convert it with scripts/to_safetensors.py %s "
            "%.*s.safetensors",
            path, kinds[i].what, path, n_stem, path);
}
