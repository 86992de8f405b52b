/* Walks the headers of a tar with libarchive, which knows ustar, pax and GNU names and sizes.
 *
 * After a header, archive_filter_bytes is the place of the member's data. With a small read block
 * libarchive seeks over the data, so a walk reads little more than the headers. */
#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/tar_index.h"
#include "dtrain/file.h"
#include "dtrain/mem.h"

enum { READ_BLOCK = 16384, TAR_BLOCK = 512, MAX_NAME = 1024, MAX_MEMBERS = 20000000 };
#define MAX_MEMBER_BYTES (UINT64_C(1) << 33)

/* A compressed archive cannot be read at random places. */
static dt_status refuse_compressed(int fd, uint64_t bytes, const char *path)
{
    static const struct {
        const char *magic, *tool;
    } formats[] = {{"\x1f\x8b", "gunzip"},
                   {"BZh", "bunzip2"},
                   {"\xfd"
                    "7zXZ",
                    "unxz"},
                   {"\x28\xb5\x2f\xfd", "unzstd"},
                   {"\x04\x22\x4d\x18", "unlz4"}};
    char head[8] = {0};

    if (bytes < TAR_BLOCK)
        DT_FAIL(DT_ERR_DATA, "shard %s is not a tar archive: it has only %llu bytes", path,
                (unsigned long long)bytes);
    DT_TRY(dt_file_pread(fd, head, sizeof head, 0, path));
    for (size_t i = 0; i < DT_COUNT(formats); i++)
        if (!memcmp(head, formats[i].magic, strlen(formats[i].magic)))
            DT_FAIL(DT_ERR_DATA,
                    "shard %s is compressed, which rules out reading single samples: %s it first",
                    path, formats[i].tool);
    return DT_OK;
}

static bool is_safe_name(const char *name)
{
    if (name[0] == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (!strncmp(part, "..", 2) && (part[2] == '/' || part[2] == 0))
            return false;
    }
    return true;
}

static dt_status visit_member(struct archive *archive, struct archive_entry *entry, int fd,
                              uint64_t file_bytes, uint64_t *end, const char *path,
                              dt_tar_visit visit, void *context)
{
    const char *name = archive_entry_pathname(entry);
    struct dt_tar_member member = {.name = name ? name : archive_entry_pathname_utf8(entry),
                                   .offset = (uint64_t)archive_filter_bytes(archive, 0),
                                   .bytes = (uint64_t)archive_entry_size(entry),
                                   .fd = fd};
    const unsigned long long at = member.offset;

    if (!member.name || !member.name[0] || strlen(member.name) > MAX_NAME)
        DT_FAIL(DT_ERR_DATA, "the member of shard %s at byte %llu has no name of 1 to %d bytes",
                path, at, MAX_NAME);
    if (member.bytes > MAX_MEMBER_BYTES || member.offset > file_bytes ||
        member.bytes > file_bytes - member.offset)
        DT_FAIL(DT_ERR_DATA,
                "shard %s is truncated: member %s needs %llu bytes at byte %llu, but the file has "
                "%llu; copy the shard again",
                path, member.name, (unsigned long long)member.bytes, at,
                (unsigned long long)file_bytes);
    *end = member.offset + (member.bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) ||
        archive_entry_symlink(entry) || archive_entry_sparse_count(entry) > 0)
        return DT_OK;
    if (!is_safe_name(member.name))
        DT_FAIL(DT_ERR_DATA, "member %s of shard %s at byte %llu leads out of the archive",
                member.name, path, at);
    return visit(context, &member);
}

/* Behind the last member there must be zero blocks only: a file cut between two members, and
 * archives joined by cat, would otherwise lose samples without a word. */
static dt_status check_end(int fd, uint64_t end, uint64_t file_bytes, const char *path)
{
    char tail[READ_BLOCK];

    if (end + TAR_BLOCK > file_bytes)
        DT_FAIL(
            DT_ERR_DATA,
            "shard %s is truncated: it ends at byte %llu without the end mark of a tar; copy or "
            "write it again",
            path, (unsigned long long)file_bytes);
    const uint64_t rest = file_bytes - end;
    const size_t bytes = rest < sizeof tail ? (size_t)rest : sizeof tail;
    DT_TRY(dt_file_pread(fd, tail, bytes, end, path));
    for (size_t i = 0; i < bytes; i++)
        if (tail[i])
            DT_FAIL(DT_ERR_DATA,
                    "shard %s goes on after its end mark, at byte %llu; was it joined from several "
                    "archives?",
                    path, (unsigned long long)(end + i));
    return DT_OK;
}

static dt_status walk(struct archive *archive, int fd, uint64_t file_bytes, const char *path,
                      dt_tar_visit visit, void *context)
{
    struct archive_entry *entry;
    uint64_t end = 0;

    archive_read_support_format_tar(archive);
    if (archive_read_open_fd(archive, fd, READ_BLOCK) != ARCHIVE_OK)
        DT_FAIL(DT_ERR_DATA, "shard %s is not a tar archive: %s", path,
                archive_error_string(archive));
    for (int n_members = 0;; n_members++) {
        const int result = archive_read_next_header(archive, &entry);
        if (result == ARCHIVE_EOF)
            break;
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
            DT_FAIL(DT_ERR_DATA, "shard %s is damaged or truncated near byte %llu: %s", path,
                    (unsigned long long)archive_filter_bytes(archive, 0),
                    archive_error_string(archive));
        if (n_members >= MAX_MEMBERS)
            DT_FAIL(DT_ERR_DATA, "shard %s has more than %d members", path, MAX_MEMBERS);
        DT_TRY(visit_member(archive, entry, fd, file_bytes, &end, path, visit, context));
    }
    return check_end(fd, end, file_bytes, path);
}

dt_status dt_tar_walk(const char *path, dt_tar_visit visit, void *context)
{
    dt_status status = DT_OK;
    struct archive *archive = NULL;
    uint64_t bytes = 0;
    int fd = -1;
    /* libarchive turns pax names from UTF-8 into the locale's set; only this thread is changed. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;

    DT_TRY_OUT(dt_file_open(&fd, &bytes, path));
    DT_TRY_OUT(refuse_compressed(fd, bytes, path));
    archive = archive_read_new();
    if (!archive)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "out of memory: cannot begin to read shard %s", path));
    DT_TRY_OUT(walk(archive, fd, bytes, path, visit, context));
out:
    if (archive)
        archive_read_free(archive);
    if (fd >= 0)
        close(fd);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return status;
}

struct search {
    uint64_t offset;
    char *out;
    size_t bytes;
};

static dt_status compare_offset(void *context, const struct dt_tar_member *member)
{
    struct search *search = context;
    if (member->offset == search->offset)
        snprintf(search->out, search->bytes, "%s", member->name);
    return DT_OK;
}

void dt_tar_member_name(const char *path, uint64_t offset, char *out, size_t bytes)
{
    struct search search = {offset, out, bytes};
    snprintf(out, bytes, "byte %llu", (unsigned long long)offset);
    if (dt_tar_walk(path, compare_offset, &search) != DT_OK)
        dt_error_clear(); /* the name is for a message about something else */
}
