/* Finds the file of --config. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/commands.h"

enum { FOLDERS_BYTES = 4 * DT_PATH_MAX };

/* "FOLDER:FOLDER:...", in the order of the search. The last two hold the configurations of a build
 * and of an installation. */
static void list_folders(char out[FOLDERS_BYTES])
{
    char program[DT_PATH_MAX] = "";
    const char *given = getenv("DTRAIN_CONFIG_PATH");
    struct dt_text text = dt_text_in(out, FOLDERS_BYTES);
    dt_text_add(&text, ".%s%s", given && *given ? ":" : "", given ? given : "");
    if (readlink("/proc/self/exe", program, sizeof program - 1) <= 0)
        return;
    *strrchr(program, '/') = '\0';
    dt_text_add(&text, ":%s/configs", program);
    *strrchr(program, '/') = '\0';
    dt_text_add(&text, ":%s/share/dtrain/configs", program);
}

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

/* Adds the names of a folder's configurations, without ".json". */
static int add_names(char names[][DT_CONFIG_NAME_MAX], int n, const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    while (dir && n < DT_CONFIG_NAMES_MAX && (entry = readdir(dir))) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".json") == 0 && end - entry->d_name < DT_CONFIG_NAME_MAX)
            snprintf(names[n++], DT_CONFIG_NAME_MAX, "%.*s", (int)(end - entry->d_name),
                     entry->d_name);
    }
    if (dir)
        closedir(dir);
    return n;
}

int dt_config_names(char names[DT_CONFIG_NAMES_MAX][DT_CONFIG_NAME_MAX])
{
    char folders[FOLDERS_BYTES], *rest = folders;
    int n = 0;
    list_folders(folders);
    for (char *folder; (folder = strsep(&rest, ":"));)
        n = add_names(names, n, folder);
    return n;
}

static dt_status refuse(const char *name, const char *folders)
{
    static char names[DT_CONFIG_NAMES_MAX][DT_CONFIG_NAME_MAX];
    const char *pointers[DT_CONFIG_NAMES_MAX];
    char plain[DT_CONFIG_NAME_MAX];
    const int n = dt_config_names(names);
    for (int i = 0; i < n; i++)
        pointers[i] = names[i];
    snprintf(plain, sizeof plain, "%s", name);
    char *end = strrchr(plain, '.');
    if (end && strcmp(end, ".json") == 0)
        *end = '\0';
    const char *nearest = dt_nearest(plain, pointers, (size_t)n);
    DT_FAIL(DT_ERR_NO_INPUT,
            "--config %s: no such file in %s (DTRAIN_CONFIG_PATH adds folders)%s%s%s", name,
            folders, nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

dt_status dt_config_find(char out[DT_PATH_MAX], const char *name)
{
    char folders[FOLDERS_BYTES], copy[FOLDERS_BYTES], *rest = copy;
    DT_TRY(dt_file_path(out, "%s", name));
    if (strchr(name, '/') || strcmp(name, "-") == 0 || is_file(name))
        return DT_OK;
    list_folders(folders);
    snprintf(copy, sizeof copy, "%s", folders);
    for (char *folder; (folder = strsep(&rest, ":"));)
        for (int i = 0; i < 2; i++) {
            DT_TRY(dt_file_path(out, "%s/%s%s", folder, name, i == 0 ? "" : ".json"));
            if (is_file(out))
                return DT_OK;
        }
    return refuse(name, folders);
}
