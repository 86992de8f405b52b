/* Places images on a large canvas, as in evaluation, for comparison with torchvision.
 *
 *     placement_tool MIN_SIDE MAX_SIDE
 *
 * Standard input: lines "width height x y w h", a box in an image. Standard output: the size that
 * the image gets, and x1 y1 x2 y2 of the box, all 0 if nothing is left of it. */
#include <stdio.h>
#include <stdlib.h>

#include "boxes/canvas.h"

int main(int n_args, char **args)
{
    const struct dt_config_data data = {.min_side = n_args > 1 ? atoi(args[1]) : 0,
                                        .max_side = n_args > 2 ? atoi(args[2]) : 0};
    const struct dt_layout layout = {&data, {{{8192, 8192}}, 1}};
    struct dt_on_canvas p;
    struct dt_truth t = {0};
    int width, height;
    while (scanf("%d %d %lf %lf %lf %lf", &width, &height, &t.x, &t.y, &t.w, &t.h) == 6) {
        float box[4] = {0};
        dt_canvas_plain(&p, &layout, width, height);
        if (!dt_on_canvas_box(box, &p, &t))
            box[0] = box[1] = box[2] = box[3] = 0;
        printf("%d %d %.9g %.9g %.9g %.9g\n", p.width, p.height, (double)box[0], (double)box[1],
               (double)box[2], (double)box[3]);
    }
    return 0;
}
