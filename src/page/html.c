#include "page/html.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

enum { IMAGE_MOST = 16 << 20 };

/* The colours are those of Okabe and Ito, darker on paper. */
static const char *const style[] = {
    ":root{--paper:#fff;--ink:#1c2329;--soft:#5c6873;--line:#d9dfe4;--card:#f6f8f9;--bad:#b42318;",
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b3508a;--c4:#b07c00;--c5:#2f9bd8;--c6:#7a5ad0;",
    "--c7:#4b5563}\n",
    "@media screen and (prefers-color-scheme:dark){:root{color-scheme:dark;--paper:#14181c;",
    "--ink:#e3e8ec;--soft:#98a4af;--line:#323b43;--card:#1b2126;--bad:#ff8a7a;--c0:#56b4e9;",
    "--c1:#ff8c4a;--c2:#3ccf9e;--c3:#e79ac6;--c4:#f0b93a;--c5:#9fd3f5;--c6:#b39dfb;--c7:#c3cad1}}"
    "\n",
    "*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}\n",
    "body{margin:0;background:var(--paper);color:var(--ink);",
    "font:15px/1.5 system-ui,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',sans-serif}\n",
    "main{max-width:1240px;margin:0 auto;padding:20px 24px 40px}\n",
    "h1{font-size:26px;line-height:1.25;margin:8px 0 2px;overflow-wrap:anywhere}\n",
    "h2{font-size:18px;margin:36px 0 10px}p,footer{margin:4px 0 12px;color:var(--soft)}\n",
    "footer{font-size:13px;margin-top:32px}\n",
    ".wide{width:fit-content;max-width:100%;overflow-x:auto;border:1px solid var(--line);",
    "border-radius:8px}\n",
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n",
    "th,td{padding:6px 14px;text-align:left;vertical-align:top;border-top:1px solid var(--line);",
    "overflow-wrap:anywhere;min-width:7em}\n",
    "tr:first-child>*{border-top:0}thead th{background:var(--card)}\n",
    "tbody th{font-weight:400;color:var(--soft);min-width:9em}\n",
    ".key{display:inline-block;width:22px;margin-right:7px;vertical-align:middle;",
    "border-top:3px solid}.key.dashed{border-top-style:dashed}",
    ".key.mark{width:0;height:13px;border:0;border-left:2px dashed}\n",
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));",
    "gap:18px}h2+.charts+.charts,.wide+.charts{margin-top:36px}\n",
    "figure{margin:0;padding:12px 14px 8px;background:var(--card);border:1px solid var(--line);",
    "border-radius:8px;min-width:0}figcaption{font-weight:600;margin-bottom:2px}\n",
    ".legend{display:flex;flex-wrap:wrap;gap:0 16px;font-size:13px;color:var(--soft);",
    "overflow-wrap:anywhere}figure svg{display:block;width:100%;height:auto;overflow:visible}\n",
    "figure text{font-size:11.5px;fill:var(--soft)}.grid{stroke:var(--line)}\n",
    ".curve{fill:none;stroke:currentColor;stroke-width:1.6;stroke-linejoin:round}\n",
    ".faint{stroke-width:1.1;opacity:.65}.dashed{stroke-dasharray:5 4}\n",
    ".dot{fill:currentColor}.hit{fill:currentColor;opacity:0}.hit:hover{opacity:.45}\n",
    ".mark{stroke:currentColor;stroke-width:1.4;stroke-dasharray:3 3}\n",
    ".near{stroke:transparent;stroke-width:10}\n",
    "img{max-width:100%;height:auto;background:#fff;border-radius:4px}\n",
    "@media (max-width:640px){main{padding:12px 12px 28px}figure{padding:10px 8px 6px}",
    "figure text{font-size:15px}th,td{padding:6px 9px}h1{font-size:22px}}\n",
    "@media print{main{padding:0;max-width:none}body{font-size:12px}.charts{gap:10px;",
    "grid-template-columns:1fr 1fr}.wide{overflow:visible}figure,tr,img{break-inside:avoid}",
    "h2{break-after:avoid}}\n",
};

static void put_style(FILE *out)
{
    fputs("<style>\n", out);
    for (size_t i = 0; i < DT_COUNT(style); i++)
        fputs(style[i], out);
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
    fputs("</head>\n<body><main>\n<h1>", out);
    dt_html_text(out, title);
    fputs("</h1>\n", out);
}

void dt_html_end(FILE *out, const char *footer)
{
    fputs("<footer>", out);
    dt_html_text(out, footer);
    fputs("</footer>\n</main></body></html>\n", out);
}

void dt_html_begin_picture(FILE *out)
{
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 316\">"
          "<foreignObject width=\"960\" height=\"316\">"
          "<body xmlns=\"http://www.w3.org/1999/xhtml\" style=\"background:none\">\n",
          out);
    put_style(out);
}

void dt_html_end_picture(FILE *out)
{
    fputs("</body></foreignObject></svg>\n", out);
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
