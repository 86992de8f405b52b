/* Decodes every file named on standard input, one per line, and prints a line for each: "ok" or
 * "bad", milliseconds of CPU time, reason. The last line is the peak resident size in KiB. Only the
 * last rows of an image are kept, which requires decoding all the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/file.h"
#include "base/mem.h"
#include "image/jpeg.h"

enum { ROWS = 16, BYTES_MAX = 60000000 };

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static dt_status decode(struct dt_jpeg *jpeg, const char *path)
{
    dt_status status = DT_OK;
    char *file = NULL;
    uint8_t *pixels = NULL;
    size_t bytes;
    int width, height;
    DT_TRY_OUT(dt_file_load(&file, &bytes, path, BYTES_MAX));
    DT_TRY_OUT(dt_jpeg_open(jpeg, &width, &height, (const uint8_t *)file, bytes));
    int rows = height < ROWS ? height : ROWS;
    DT_TRY_OUT(DT_NEW(pixels, (size_t)width * (size_t)rows * 3));
    DT_TRY_OUT(dt_jpeg_decode(jpeg, pixels, 0, height - rows, width, rows));
out:
    free(pixels);
    free(file);
    return status;
}

int main(void)
{
    struct dt_jpeg *jpeg;
    struct rusage usage;
    char path[DT_PATH_MAX];
    if (dt_jpeg_create(&jpeg, NULL) != DT_OK)
        return 71;
    while (fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\n")] = '\0';
        double before = cpu_ms();
        dt_status status = decode(jpeg, path);
        printf("%s\t%.1f\t%s\n", status == DT_OK ? "ok" : "bad", cpu_ms() - before,
               status == DT_OK ? "" : dt_error_text());
        fflush(stdout); /* so that the output shows which file caused a crash */
    }
    dt_jpeg_destroy(jpeg);
    getrusage(RUSAGE_SELF, &usage);
    printf("%ld\n", usage.ru_maxrss);
    return 0;
}
