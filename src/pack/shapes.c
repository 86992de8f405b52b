/* Generated JPEG files of ten shapes, for a first training run without a download.
 *
 * Position, size, tilt, colours, background, spots and noise are drawn from (seed, class, number).
 * A shape is a function that tells whether a point in its own coordinates is inside; a pixel
 * evaluates it at 3 x 3 points.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "dtrain/data.h"
#include "image/jpeg.h"
#include "pack/pack.h"

enum { N_SPOTS = 3, N_SUB = 3, QUALITY = 90, MIN_CONTRAST = 150, MAX_PER_CLASS = 1000000 };
static const double pi = 3.14159265358979323846;

/* --- Shapes: true if (u, v) is inside; u, v in -1 .. 1 --- */

static bool in_checker(double u, double v)
{
    const int column = (int)floor((u + 0.9) / 0.45), row = (int)floor((v + 0.9) / 0.45);
    return fmax(fabs(u), fabs(v)) < 0.9 && ((column + row) & 1) == 0;
}

static bool in_circle(double u, double v)
{
    return u * u + v * v < 0.8;
}

static bool in_cross(double u, double v)
{
    return fmax(fabs(u), fabs(v)) < 0.95 && fmin(fabs(u), fabs(v)) < 0.28;
}

static bool in_diamond(double u, double v)
{
    return fabs(u) / 0.7 + fabs(v) < 1;
}

static bool in_hbars(double u, double v)
{
    return fmax(fabs(u), fabs(v)) < 0.9 && ((int)floor((v + 0.9) / 0.36) & 1) == 0;
}

static bool in_ring(double u, double v)
{
    const double r2 = u * u + v * v;
    return r2 > 0.25 && r2 < 0.9;
}

static bool in_square(double u, double v)
{
    return fmax(fabs(u), fabs(v)) < 0.78;
}

/* Five points: folded into one tenth, the inside of the star is one side of a single edge. */
static bool in_star(double u, double v)
{
    const double sector = 2 * pi / 5, inner = 0.42;
    double angle = fmod(atan2(u, -v) + 2 * pi, sector);
    if (angle > sector / 2)
        angle = sector - angle;
    const double r = sqrt(u * u + v * v), x = r * cos(angle), y = r * sin(angle);
    const double edge_x = inner * cos(sector / 2) - 1, edge_y = inner * sin(sector / 2);
    return edge_x * y - edge_y * (x - 1) > 0;
}

static bool in_triangle(double u, double v)
{
    return v < 0.75 && fabs(u) < (v + 1) * 0.54;
}

static bool in_vbars(double u, double v)
{
    return in_hbars(v, u);
}

static const struct shape {
    const char *name; /* sorted: the position is the label */
    bool (*is_inside)(double u, double v);
} shapes[] = {
    {"checker", in_checker}, {"circle", in_circle}, {"cross", in_cross},
    {"diamond", in_diamond}, {"hbars", in_hbars},   {"ring", in_ring},
    {"square", in_square},   {"star", in_star},     {"triangle", in_triangle},
    {"vbars", in_vbars},
};

/* --- One image --- */

/* Parameters of one image; lengths relative to the image size, colours 0 .. 255. */
struct scene {
    const struct shape *shape;
    double x, y, radius, cosine, sine;
    double color[3], background[2][3]; /* background: at the top and at the bottom */
    struct {
        double x, y, radius, color[3];
    } spot[N_SPOTS];
    double noise;
};

static double between(struct dt_rng *rng, double low, double high)
{
    return low + (high - low) * dt_rng_uniform(rng);
}

static void draw_scene(struct scene *scene, const struct shape *shape, struct dt_rng *rng)
{
    double contrast = 0;
    scene->shape = shape;
    scene->radius = between(rng, 0.26, 0.42);
    scene->x = between(rng, scene->radius - 0.05, 1.05 - scene->radius);
    scene->y = between(rng, scene->radius - 0.05, 1.05 - scene->radius);
    const double tilt = between(rng, -0.25, 0.25);
    scene->cosine = cos(tilt);
    scene->sine = sin(tilt);
    for (int c = 0; c < 3; c++) {
        scene->background[0][c] = between(rng, 0, 255);
        scene->background[1][c] = scene->background[0][c] + between(rng, -40, 40);
    }
    while (contrast < MIN_CONTRAST) {
        contrast = 0;
        for (int c = 0; c < 3; c++) {
            scene->color[c] = between(rng, 0, 255);
            contrast += fabs(scene->color[c] - scene->background[0][c]);
        }
    }
    for (int i = 0; i < N_SPOTS; i++) {
        scene->spot[i].x = between(rng, 0, 1);
        scene->spot[i].y = between(rng, 0, 1);
        scene->spot[i].radius = between(rng, 0.03, 0.07);
        for (int c = 0; c < 3; c++)
            scene->spot[i].color[c] = between(rng, 0, 255);
    }
    scene->noise = between(rng, 5, 30);
}

static void add_point(double sum[3], const struct scene *scene, double x, double y)
{
    const double dx = (x - scene->x) / scene->radius, dy = (y - scene->y) / scene->radius;
    const double u = dx * scene->cosine + dy * scene->sine;
    const double v = dy * scene->cosine - dx * scene->sine;
    const double *color = NULL;
    if (scene->shape->is_inside(u, v))
        color = scene->color;
    for (int i = 0; i < N_SPOTS; i++)
        if (hypot(x - scene->spot[i].x, y - scene->spot[i].y) < scene->spot[i].radius)
            color = scene->spot[i].color;
    for (int c = 0; c < 3; c++)
        sum[c] +=
            color ? color[c] : scene->background[0][c] * (1 - y) + scene->background[1][c] * y;
}

static void draw_pixels(uint8_t *pixels, const struct scene *scene, int size, struct dt_rng *rng)
{
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++) {
            double sum[3] = {0};
            for (int i = 0; i < N_SUB * N_SUB; i++)
                add_point(sum, scene, (x + (i % N_SUB + 0.5) / N_SUB) / size,
                          (y + ((double)(i / N_SUB) + 0.5) / N_SUB) / size);
            for (int c = 0; c < 3; c++) {
                const double value =
                    sum[c] / (N_SUB * N_SUB) + scene->noise * dt_rng_normal(rng) + 0.5;
                *pixels++ = (uint8_t)fmin(fmax(value, 0), 255);
            }
        }
}

/* --- Files --- */

static dt_status write_shape(const char *dir, size_t class, int number, uint8_t *pixels, int size,
                             uint64_t seed)
{
    dt_status status = DT_OK;
    char path[DT_PATH_MAX];
    struct dt_rng rng;
    struct scene scene;
    uint8_t *data = NULL;
    size_t bytes = 0;
    dt_rng_init(&rng, seed, DT_RNG_SYNTHETIC, (uint32_t) class, (uint32_t)number);
    draw_scene(&scene, &shapes[class], &rng);
    draw_pixels(pixels, &scene, size, &rng);
    DT_TRY(dt_file_path(path, "%s/%s/%05d.jpg", dir, shapes[class].name, number));
    DT_TRY(dt_jpeg_encode(&data, &bytes, pixels, size, size, QUALITY, 1));
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_CREATE, "cannot create %s: %s", path, strerror(errno)));
    status = dt_file_write(fd, data, bytes, path);
    if (close(fd) && status == DT_OK)
        status = DT_ERROR(DT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
out:
    free(data);
    return status;
}

dt_status dt_shapes_write(const char *dir, int per_class, int size, uint64_t seed)
{
    dt_status status = DT_OK;
    uint8_t *pixels = NULL;
    char path[DT_PATH_MAX];
    const double start_s = dt_clock_s();
    if (per_class < 1 || per_class > MAX_PER_CLASS || size < 8 || size > 4096)
        DT_FAIL(DT_ERR_USAGE,
                "shapes need 1 to %d images per class and 8 to 4096 pixels, not %d and %d",
                MAX_PER_CLASS, per_class, size);
    DT_TRY(DT_NEW(pixels, (size_t)size * (size_t)size * 3));
    for (size_t class = 0; class < DT_COUNT(shapes); class ++) {
        DT_TRY_OUT(dt_file_path(path, "%s/%s", dir, shapes[class].name));
        DT_TRY_OUT(dt_file_make_folder(path));
        for (int i = 0; i < per_class; i++) {
            DT_TRY_OUT(write_shape(dir, class, i, pixels, size, seed));
            dt_log_progress_of("drawing shapes", class * (size_t)per_class + (size_t)i + 1,
                               DT_COUNT(shapes) * (size_t)per_class, "images", start_s);
        }
    }
out:
    dt_log_progress("");
    free(pixels);
    return status;
}
