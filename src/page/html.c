#include "page/html.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

enum { MAX_IMAGE = 16 << 20 };

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

/* Shapes and texts only, as dtrain draws them: no scripts, links, styles or entities. */
static bool is_plain_svg(const char *text)
{
    static const char *const tags[] = {"svg", "rect", "path", "text"};
    for (size_t i = 0; (text = strpbrk(text, "< \t\r\n")); i = 0) {
        const bool is_tag = *text == '<', is_end = is_tag && text[1] == '/';
        text += 1 + is_end;
        const size_t bytes = strspn(text, "abcdefghijklmnopqrstuvwxyz");
        const size_t blanks = strspn(text + bytes, " \t\r\n");
        if (!is_tag && strncmp(text, "on", 2) == 0 && text[bytes + blanks] == '=')
            return false;
        while (is_tag && i < DT_COUNT(tags) &&
               (strlen(tags[i]) != bytes || memcmp(tags[i], text, bytes) != 0))
            i++;
        if (i == DT_COUNT(tags))
            return false;
    }
    return true;
}

static bool is_image(const char *data, size_t bytes, const char *mime)
{
    static const char *const kinds[][2] = {{"image/png", "\x89PNG\r\n\x1a\n"},
                                           {"image/jpeg", "\xff\xd8\xff"},
                                           {"image/svg+xml", "<svg "}};
    for (size_t i = 0; i < DT_COUNT(kinds); i++)
        if (strcmp(mime, kinds[i][0]) == 0 && strncmp(data, kinds[i][1], strlen(kinds[i][1])) == 0)
            return data[0] != '<' || (strlen(data) == bytes && is_plain_svg(data));
    return false;
}

dt_status dt_html_image(FILE *out, const char *before, const char *path, const char *mime,
                        const char *what)
{
    char *data;
    size_t bytes;
    DT_TRY(dt_file_load_own(&data, &bytes, path, MAX_IMAGE));
    if (!is_image(data, bytes, mime)) {
        free(data);
        DT_FAIL(DT_ERR_DATA, "%s is not of type %s as dtrain writes it", path, mime);
    }
    fprintf(out, "%s<figure><figcaption>", before);
    dt_html_text(out, what);
    fprintf(out, "</figcaption><img alt=\"");
    dt_html_text(out, what);
    fprintf(out, "\" src=\"data:%s;base64,", mime);
    put_base64(out, (const unsigned char *)data, bytes);
    fputs("\"/></figure>\n", out);
    free(data);
    return DT_OK;
}
