/* Environment variables in the strings of a configuration file. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "config/keys.h"

/* The '}' of a '{' before `at`, or NULL. */
static const char *closing_brace(const char *at)
{
    for (int depth = 1; *at; at++) {
        depth += (*at == '{') - (*at == '}');
        if (depth == 0)
            return at;
    }
    return NULL;
}

static bool add_value(struct dt_text *out, const char *name, struct dt_text *mistake)
{
    const char *value = getenv(name);
    bool is_set = value && *value;
    if (is_set && dt_utf8_is_valid(value)) {
        dt_text_add(out, "%s", value);
        return true;
    }
    dt_text_add(
        mistake,
        "the environment variable %s is %s where rank 0 runs; set it, or write ${%s:-VALUE}", name,
        is_set  ? "not UTF-8"
        : value ? "empty"
                : "not set",
        name);
    return false;
}

/* Appends the variable whose name begins at *at, behind "${", and moves *at behind its '}'. */
static bool add_variable(struct dt_text *out, const char **at, struct dt_text *mistake)
{
    const char *name = *at, *end = closing_brace(name), *rest = name;
    char copy[256];
    struct dt_text variable = dt_text_in(copy, sizeof copy);
    while (*rest == '_' || isalnum((unsigned char)*rest))
        rest++;
    bool has_default = strncmp(rest, ":-", 2) == 0;
    if (!end || rest == name || isdigit((unsigned char)*name) || (rest != end && !has_default)) {
        dt_text_add(mistake,
                    "expected ${NAME} or ${NAME:-VALUE}, got \"${%.60s\"; $${ stands for ${ itself",
                    name);
        return false;
    }
    dt_text_add(&variable, "%.*s", (int)(rest - name), name);
    *at = end + 1;
    const char *value = getenv(copy);
    return has_default && (!value || !*value) ? dt_key_expand(out, rest + 2, end, mistake)
                                              : add_value(out, copy, mistake);
}

bool dt_key_expand(struct dt_text *out, const char *text, const char *end, struct dt_text *mistake)
{
    while (text < end) {
        if (strncmp(text, "$${", 3) == 0) {
            dt_text_add(out, "${");
            text += 3;
        } else if (strncmp(text, "${", 2) != 0) {
            dt_text_add(out, "%c", *text++);
        } else {
            text += 2;
            if (!add_variable(out, &text, mistake))
                return false;
        }
    }
    return true;
}

void dt_key_escape(struct dt_text *out, const char *text)
{
    for (; *text; text++)
        dt_text_add(out, strncmp(text, "${", 2) == 0 ? "$%c" : "%c", *text);
}
