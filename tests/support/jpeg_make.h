/* JPEG files for tests: valid ones of every kind, and a table of files that must be rejected, each
 * with words that the reason must contain. */
#ifndef TEST_JPEG_MAKE_H
#define TEST_JPEG_MAKE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

struct file {
    uint8_t *data;
    size_t bytes;
};

struct jpeg_kind {
    const char *name;
    int width, height;
    J_COLOR_SPACE pixels, stored; /* input samples, file */
    const char *sampling;         /* "22 11 11": factors of each component (h, v); NULL: all 1 */
    int restart;                  /* interval in block rows, 0 = none */
    enum { ONE_SCAN, PROGRESSIVE, DC_THEN_AC, UNREFINED, SEPARATE } scans;
    bool adobe;
    bool noisy; /* neighbours differ, so that no column or row can be mistaken for another */
};

static inline int kind_channels(const struct jpeg_kind *kind)
{
    return kind->pixels == JCS_GRAYSCALE ? 1 : kind->pixels == JCS_CMYK ? 4 : 3;
}

/* Channel c at (x, y); smooth unless noisy, so that compression loses little. */
static inline uint8_t picture(const struct jpeg_kind *kind, int x, int y, int c)
{
    if (kind->noisy)
        return (uint8_t)(((unsigned)(x + 1) * 2654435761u ^ (unsigned)(y + 3) * 2246822519u ^
                          (unsigned)(c + 5) * 3266489917u) *
                             668265263u >>
                         24);
    int u = 60 + 130 * x / kind->width, v = 50 + 150 * y / kind->height;
    const int values[] = {u, v, 255 - (u + v) / 2, (u + v) / 4};
    return (uint8_t)values[c];
}

static inline void jpeg_set_scans(struct jpeg_compress_struct *info, int scans)
{
    static const jpeg_scan_info scripts[][3] = {
        [DC_THEN_AC] = {{1, {0}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 0}}, /* grey */
        /* The decoder estimates the missing coefficients from neighbouring blocks. */
        [UNREFINED] = {{3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 2}},
        [SEPARATE] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}},
    };
    if (scans == PROGRESSIVE)
        jpeg_simple_progression(info);
    if (scans > PROGRESSIVE) {
        info->scan_info = scripts[scans];
        info->num_scans = scans == SEPARATE ? 3 : 2;
    }
}

static inline struct file jpeg_make(const struct jpeg_kind *kind)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *data = NULL;
    unsigned long bytes = 0;
    int n = kind_channels(kind);
    uint8_t *row = malloc((size_t)kind->width * (size_t)n);
    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &data, &bytes);
    info.image_width = (JDIMENSION)kind->width;
    info.image_height = (JDIMENSION)kind->height;
    info.input_components = n;
    info.in_color_space = kind->pixels;
    jpeg_set_defaults(&info);
    jpeg_set_colorspace(&info, kind->stored);
    jpeg_set_quality(&info, 97, TRUE);
    if (kind->stored == JCS_CMYK || kind->stored == JCS_YCCK)
        info.write_Adobe_marker = kind->adobe;
    for (int c = 0; c < n; c++) {
        info.comp_info[c].h_samp_factor = kind->sampling ? kind->sampling[3 * c] - '0' : 1;
        info.comp_info[c].v_samp_factor = kind->sampling ? kind->sampling[3 * c + 1] - '0' : 1;
    }
    info.restart_in_rows = kind->restart;
    jpeg_set_scans(&info, kind->scans);
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < kind->height; y++) {
        for (int x = 0; x < kind->width; x++) {
            for (int c = 0; c < n; c++)
                row[x * n + c] = picture(kind, x, y, c);
        }
        JSAMPROW line = row;
        jpeg_write_scanlines(&info, &line, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    free(row);
    struct file file = {malloc(bytes), bytes}; /* exact size, so that ASan detects any over-read */
    memcpy(file.data, data, bytes);
    free(data);
    return file;
}

static const struct jpeg_kind jpeg_kinds[] = {
    {"rgb 4:4:4", 97, 65, JCS_RGB, JCS_YCbCr, NULL, 0, ONE_SCAN, false, false},
    {"rgb 4:2:0", 97, 65, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, false},
    {"stored as rgb", 40, 30, JCS_RGB, JCS_RGB, NULL, 0, ONE_SCAN, false, false},
    {"grey", 97, 65, JCS_GRAYSCALE, JCS_GRAYSCALE, NULL, 0, ONE_SCAN, false, false},
    {"cmyk adobe", 64, 48, JCS_CMYK, JCS_CMYK, NULL, 0, ONE_SCAN, true, false},
    {"cmyk plain", 64, 48, JCS_CMYK, JCS_CMYK, NULL, 0, ONE_SCAN, false, false},
    {"ycck adobe", 64, 48, JCS_CMYK, JCS_YCCK, "22 11 11 22", 0, ONE_SCAN, true, false},
    {"progressive", 97, 65, JCS_RGB, JCS_YCbCr, "22 11 11", 0, PROGRESSIVE, false, false},
    {"progressive grey", 33, 65, JCS_GRAYSCALE, JCS_GRAYSCALE, NULL, 0, PROGRESSIVE, false, false},
    {"progressive, not refined", 33, 65, JCS_GRAYSCALE, JCS_GRAYSCALE, NULL, 0, DC_THEN_AC, false,
     false},
    {"restart markers", 97, 65, JCS_RGB, JCS_YCbCr, "22 11 11", 1, ONE_SCAN, false, false},
    {"1 pixel wide", 1, 65, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, false},
    {"1 pixel high", 65, 1, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, false},
    {"1 pixel", 1, 1, JCS_RGB, JCS_YCbCr, NULL, 0, ONE_SCAN, false, false},
};
enum { N_JPEG_KINDS = sizeof jpeg_kinds / sizeof jpeg_kinds[0] };

/* Every sampling and order of scans, of noise. */
static const struct jpeg_kind jpeg_layouts[] = {
    {"4:4:4", 101, 67, JCS_RGB, JCS_YCbCr, NULL, 0, ONE_SCAN, false, true},
    {"4:2:2", 101, 67, JCS_RGB, JCS_YCbCr, "21 11 11", 0, ONE_SCAN, false, true},
    {"4:4:0", 101, 67, JCS_RGB, JCS_YCbCr, "12 11 11", 0, ONE_SCAN, false, true},
    {"4:2:0", 101, 67, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
    {"4:2:0 of whole blocks", 96, 64, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
    {"4:1:1", 131, 40, JCS_RGB, JCS_YCbCr, "41 11 11", 0, ONE_SCAN, false, true},
    {"4:1:0", 131, 70, JCS_RGB, JCS_YCbCr, "42 11 11", 0, ONE_SCAN, false, true},
    {"4 and 2 across", 131, 40, JCS_RGB, JCS_YCbCr, "41 21 11", 0, ONE_SCAN, false, true},
    {"4 and 2 down", 40, 131, JCS_RGB, JCS_YCbCr, "14 12 11", 0, ONE_SCAN, false, true},
    {"3 across", 131, 40, JCS_RGB, JCS_YCbCr, "31 11 11", 0, ONE_SCAN, false, true},
    {"3 down", 40, 131, JCS_RGB, JCS_YCbCr, "13 11 11", 0, ONE_SCAN, false, true},
    {"mixed", 101, 67, JCS_RGB, JCS_YCbCr, "22 12 21", 0, ONE_SCAN, false, true},
    {"full chroma, half luma", 101, 67, JCS_RGB, JCS_YCbCr, "11 22 22", 0, ONE_SCAN, false, true},
    {"all 2", 101, 67, JCS_RGB, JCS_YCbCr, "21 21 21", 0, ONE_SCAN, false, true},
    {"stored as rgb", 101, 67, JCS_RGB, JCS_RGB, "22 11 11", 0, ONE_SCAN, false, true},
    {"restart markers", 101, 67, JCS_RGB, JCS_YCbCr, "22 11 11", 1, ONE_SCAN, false, true},
    {"progressive 4:4:4", 101, 67, JCS_RGB, JCS_YCbCr, NULL, 0, PROGRESSIVE, false, true},
    {"progressive 4:2:0", 101, 67, JCS_RGB, JCS_YCbCr, "22 11 11", 1, PROGRESSIVE, false, true},
    {"unrefined 4:4:4", 101, 67, JCS_RGB, JCS_YCbCr, NULL, 0, UNREFINED, false, true},
    {"unrefined 4:2:0", 131, 131, JCS_RGB, JCS_YCbCr, "22 11 11", 0, UNREFINED, false, true},
    {"unrefined 4:1:1", 210, 40, JCS_RGB, JCS_YCbCr, "41 11 11", 0, UNREFINED, false, true},
    {"separate scans", 101, 67, JCS_RGB, JCS_YCbCr, "22 11 11", 0, SEPARATE, false, true},
    {"grey", 101, 67, JCS_GRAYSCALE, JCS_GRAYSCALE, NULL, 0, ONE_SCAN, false, true},
    {"grey 2x2", 101, 67, JCS_GRAYSCALE, JCS_GRAYSCALE, "22", 0, ONE_SCAN, false, true},
    {"grey 1x2", 101, 67, JCS_GRAYSCALE, JCS_GRAYSCALE, "12", 1, ONE_SCAN, false, true},
    {"cmyk", 101, 67, JCS_CMYK, JCS_CMYK, NULL, 0, ONE_SCAN, true, true},
    {"ycck 4:2:0", 101, 67, JCS_CMYK, JCS_YCCK, "22 11 11 22", 0, ONE_SCAN, true, true},
    {"1 wide", 1, 67, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
    {"1 high", 101, 1, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
    {"5 wide", 5, 67, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
    {"17 wide", 17, 33, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
    {"34 wide", 34, 34, JCS_RGB, JCS_YCbCr, "22 11 11", 0, ONE_SCAN, false, true},
    {"34 wide 4:2:2", 34, 34, JCS_RGB, JCS_YCbCr, "21 11 11", 0, ONE_SCAN, false, true},
};

/* --- Bad files --- */

/* Offset of the first marker 0xff `code`, which must exist in the file. */
static inline size_t find_marker(const struct file *file, int code)
{
    for (size_t i = 0; i + 1 < file->bytes; i++) {
        if (file->data[i] == 0xff && file->data[i + 1] == code)
            return i;
    }
    fprintf(stderr, "the file made for the test has no marker 0x%02x\n", (unsigned)code);
    abort();
}

static inline void remove_bytes(struct file *file, size_t at, size_t n)
{
    memmove(file->data + at, file->data + at + n, file->bytes - at - n);
    file->bytes -= n;
}

static inline void remove_segment(struct file *file, int code)
{
    size_t at = find_marker(file, code);
    remove_bytes(file, at, 2u + file->data[at + 2] * 256u + file->data[at + 3]);
}

static inline void set_u16(struct file *file, size_t at, int value)
{
    file->data[at] = (uint8_t)(value >> 8);
    file->data[at + 1] = (uint8_t)value;
}

enum { SOF0 = 0xc0, SOF2 = 0xc2, DHT = 0xc4, EOI = 0xd9, SOS = 0xda, DQT = 0xdb, APP0 = 0xe0 };

static inline void set_two_components(struct file *f)
{
    size_t at = find_marker(f, SOF0);
    f->data[at + 9] = 2;
    set_u16(f, at + 2, 8 + 3 * 2);
    remove_bytes(f, at + 16, 3);
    size_t scan = find_marker(f, SOS);
    f->data[scan + 4] = 2;
    set_u16(f, scan + 2, 6 + 2 * 2);
    remove_bytes(f, scan + 9, 2);
}
static inline void remove_quantisation(struct file *f)
{
    remove_segment(f, DQT);
    remove_segment(f, DQT);
}
static inline void remove_frame(struct file *f)
{
    remove_segment(f, SOF0);
}
static inline void end_before_scan(struct file *f)
{
    size_t at = find_marker(f, SOS);
    f->data[at + 1] = EOI;
    f->bytes = at + 2;
}
static inline void scramble(struct file *f)
{
    size_t at = find_marker(f, SOS) + 14, n = f->bytes - at - 2;
    for (size_t i = 0; i < n; i++)
        f->data[at + i] = (uint8_t)(i * 73 % 251);
}
/* Repeats the AC scan of a file without refinement, about which libjpeg does not warn. */
static inline void repeat_scan(struct file *f)
{
    enum { N = 300 };
    size_t at = f->bytes;
    while (at > 0 && !(f->data[at - 2] == 0xff && f->data[at - 1] == SOS))
        at--;
    size_t begin = at - 2, n = f->bytes - 2 - begin;
    uint8_t *grown = malloc(begin + N * n + 2);
    memcpy(grown, f->data, begin);
    for (size_t i = 0; i < N; i++)
        memcpy(grown + begin + i * n, f->data + begin, n);
    memcpy(grown + begin + N * n, "\xff\xd9", 2);
    free(f->data);
    *f = (struct file){grown, begin + N * n + 2};
}

enum { BASE_420 = 1, BASE_PROGRESSIVE = 7, BASE_NOT_REFINED = 9, BASE_RESTART = 10 };

/* Literal bytes, or a valid file of jpeg_kinds[base] that is damaged by a function, or by bytes at
 * an offset from a marker, or cut: above 0 to so many bytes, below by so many. */
#define BYTES(literal) .bytes = literal, .n_bytes = sizeof literal - 1
static const struct bad_file {
    const char *name, *reason;
    int base;
    void (*damage)(struct file *file);
    int marker, offset, cut;
    const char *bytes;
    size_t n_bytes;
} bad_files[] = {
    {"png", "a PNG file, not a JPEG", BYTES("\x89PNG\n\x1a\n\0\0\0\rIHDR")},
    {"heic", "a HEIC file, not a JPEG file; convert it: mogrify -format jpg FILE",
     BYTES("\0\0\0\x18\146typheic\0\0\0\0")},
    {"avif", "an AVIF file, not a JPEG", BYTES("\0\0\0\x20\146typavif\0\0\0\0")},
    {"pdf", "a PDF file, not a JPEG", BYTES("%PDF-1.4\n")},
    {"html", "an HTML or XML file", BYTES("<html>404</html>")},
    {"gzip", "a gzip file, not a JPEG", BYTES("\x1f\x8b\x08\0\0\0")},
    {"text", "starts with 0x68 0x65", BYTES("hello")},
    {"zeros", "starts with 0x00 0x00", BYTES("\0\0\0\0\0\0\0\0")},
    {"one-byte", "starts with 0xff", BYTES("\xff")},
    {"empty", "empty", BYTES("")},
    {"start-only", "Premature end", BYTES("\xff\xd8")},
    {"cut-header", "Premature end", BASE_420, .cut = 100},
    {"cut-half", "Premature end", BASE_420, .cut = 965},
    {"cut-tenth", "Premature end", BASE_420, .cut = -200},
    {"cut-two-bytes", "Premature end", BASE_420, .cut = -2},
    {"cut-progressive", "Premature end", BASE_PROGRESSIVE, .cut = 754},
    {"huge", "pixels 4225000000 > 2000000000", BASE_420, NULL, SOF0, 5, BYTES("\xfd\xe8\xfd\xe8")},
    {"no-height", "Empty JPEG image", BASE_420, NULL, SOF0, 5, BYTES("\0\0")},
    {"too-wide", "Maximum supported image dimension", BASE_420, NULL, SOF0, 7, BYTES("\xff\xff")},
    /* Full chroma: six bytes of coefficients per pixel. */
    {"memory", "more than 800 MB", BASE_PROGRESSIVE, NULL, SOF2, 5,
     BYTES("\x32\xc8\x2e\xe0\3\1\x11")},
    {"12-bit", "precision 12", BASE_420, NULL, SOF0, 4, BYTES("\x0c")},
    {"lossless", "SOF type 0xc3", BASE_420, NULL, SOF0, 1, BYTES("\xc3")},
    {"arithmetic", "arithmetic coding", BASE_420, NULL, SOF0, 1, BYTES("\xc9")},
    {"two-components", "2 colour components", BASE_420, .damage = set_two_components},
    {"sampling", "sampling factors", BASE_420, NULL, SOF0, 11, BYTES("\x51")},
    {"short-segment", "marker length", BASE_420, NULL, DQT, 2, BYTES("\0\1")},
    {"huffman-table", "Huffman table", BASE_420, NULL, DHT, 5,
     BYTES("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")},
    {"no-tables", "Quantization table", BASE_420, .damage = remove_quantisation},
    {"no-frame", "SOS before SOF", BASE_420, .damage = remove_frame},
    {"no-scan", "missing SOS marker", BASE_420, .damage = end_before_scan},
    {"scrambled", "Corrupt JPEG data", BASE_420, .damage = scramble},
    {"restart", "Corrupt JPEG data", BASE_RESTART, NULL, 0xd1, 1, BYTES("\xd5")},
    {"scan-bomb", "more than 100 scans", BASE_NOT_REFINED, .damage = repeat_scan},
};
enum { N_BAD_FILES = sizeof bad_files / sizeof bad_files[0] };

static inline struct file bad_file_make(const struct bad_file *bad)
{
    struct file file = {NULL, bad->n_bytes};
    if (bad->base)
        file = jpeg_make(&jpeg_kinds[bad->base]);
    else
        file.data = malloc(bad->n_bytes ? bad->n_bytes : 1);
    size_t at = bad->marker ? find_marker(&file, bad->marker) + (size_t)bad->offset : 0;
    if (bad->damage)
        bad->damage(&file);
    else if (bad->bytes)
        memcpy(file.data + at, bad->bytes, bad->n_bytes);
    if (bad->cut)
        file.bytes = (size_t)(bad->cut + (bad->cut < 0 ? (int)file.bytes : 0));
    return file;
}

#endif
