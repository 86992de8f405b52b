#include "page/html.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

enum { IMAGE_MOST = 16 << 20 };

static const unsigned char style[] = {
#include "page/report.css.inc"
};
static const unsigned char script[] = {
#include "page/report.js.inc"
};

static void put_style(FILE *out)
{
    fputs("<style>\n", out);
    fwrite(style, 1, sizeof style, out);
    fputs("</style>", out);
}

void dt_html_begin(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>", out);
    dt_html_text(out, title);
    fputs("</title>\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<link rel=\"icon\" href=\"data:,\"/>\n",
          out);
    put_style(out);
    fputs("</head>\n<body><main data-live=\"0000000000000000\">\n<h1>", out);
    dt_html_text(out, title);
    fputs("</h1>\n", out);
}

void dt_html_end(FILE *out, const char *footer)
{
    fputs("<footer>", out);
    dt_html_text(out, footer);
    fputs("</footer>\n</main>\n<script>//<![CDATA[\n", out);
    fwrite(script, 1, sizeof script, out);
    fputs("//]]></script></body></html>\n", out);
}

void dt_html_text(FILE *out, const char *text)
{
    for (size_t left = strlen(text), n; left > 0; left -= n, text += n) {
        n = dt_utf8_length(text, left);
        bool is_control = (unsigned char)*text < ' ' && *text != '\n';
        if (n == 0 || is_control || *text == '\x7f')
            fputc('?', out);
        else if (n == 1 && strchr("&<>\"'", *text))
            fprintf(out, "&#%d;", *text);
        else
            fwrite(text, 1, n, out);
        n += n == 0;
    }
}

void dt_html_data(FILE *out, const char *id, const char *json)
{
    fprintf(out,
            id ? "<script type=\"application/json\" id=\"%s\">"
               : "<script type=\"application/json\">",
            id);
    for (; *json; json++)
        if (strchr("<>&", *json))
            fprintf(out, "\\u%04x", *json);
        else
            fputc(*json, out);
    fputs("</script>\n", out);
}

static void put_base64(FILE *out, const unsigned char *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes; i += 3) {
        unsigned group = (unsigned)data[i] << 16;
        group |= i + 1 < bytes ? (unsigned)data[i + 1] << 8 : 0;
        group |= i + 2 < bytes ? data[i + 2] : 0;
        fputc(digits[group >> 18], out);
        fputc(digits[group >> 12 & 63], out);
        fputc(i + 1 < bytes ? digits[group >> 6 & 63] : '=', out);
        fputc(i + 2 < bytes ? digits[group & 63] : '=', out);
    }
}

dt_status dt_html_image(FILE *out, const char *path, const char *mime, const char *what)
{
    char *data;
    size_t bytes;
    if (!dt_file_exists(path))
        return DT_OK;
    DT_TRY(dt_file_load(&data, &bytes, path, IMAGE_MOST));
    fprintf(out, "<figure><figcaption>");
    dt_html_text(out, what);
    fprintf(out, "</figcaption><img alt=\"");
    dt_html_text(out, what);
    fprintf(out, "\" src=\"data:%s;base64,", mime);
    put_base64(out, (const unsigned char *)data, bytes);
    fputs("\"/></figure>\n", out);
    free(data);
    return DT_OK;
}
