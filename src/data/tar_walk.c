/* Walks the headers of a tar with libarchive, which supports ustar, pax and GNU names and sizes.
 *
 * After a header, archive_filter_bytes is the offset of the member's data. With a small read block
 * libarchive seeks over the data, so a walk reads little more than the headers. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/names.h"
#include "data/tar_index.h"

enum {
    READ_BLOCK = 16384,
    TAR_BLOCK = 512,
    MAX_NAME = 1024,
    MAX_MEMBERS = 20000000,
    MAX_HEADER_BYTES = 65536 /* of one member, with its pax records and long names */
};
#define MAX_MEMBER_BYTES (UINT64_C(1) << 33)

struct walk {
    struct archive *archive;
    int fd;
    uint64_t first, past; /* the archive is bytes first .. past-1 of the file */
    uint64_t end;         /* of the last member's data, with its padding */
    const char *path;
    dt_tar_visit visit;
    void *context;
    int n_skipped;
};

/* A compressed archive does not allow random access. */
static dt_status refuse_compressed(int fd, struct dt_tar_range range, const char *path)
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
    DT_TRY(dt_file_pread(fd, head, range.bytes < sizeof head ? (size_t)range.bytes : sizeof head,
                         range.offset, path));
    for (size_t i = 0; i < DT_COUNT(formats); i++)
        if (!memcmp(head, formats[i].magic, strlen(formats[i].magic)))
            DT_FAIL(DT_ERR_DATA,
                    "shard %s is compressed, and training cannot seek in it: %s it first", path,
                    formats[i].tool);
    if (range.bytes < TAR_BLOCK)
        DT_FAIL(DT_ERR_DATA, "shard %s is not a tar archive: it has only %llu bytes", path,
                (unsigned long long)range.bytes);
    return DT_OK;
}

static dt_status check_place(struct walk *walk, const struct dt_tar_member *member)
{
    const unsigned long long at = member->offset;
    if (member->offset > walk->end && member->offset - walk->end > MAX_HEADER_BYTES)
        DT_FAIL(DT_ERR_DATA,
                "the headers of member %s of shard %s take %llu bytes; at most %d are accepted",
                member->name, walk->path, at - walk->end, MAX_HEADER_BYTES);
    if (member->offset > walk->past || member->bytes > walk->past - member->offset)
        DT_FAIL(DT_ERR_DATA,
                "shard %s is truncated: member %s needs %llu bytes at byte %llu, but the archive "
                "ends at %llu; copy the shard again",
                walk->path, member->name, (unsigned long long)member->bytes, at,
                (unsigned long long)walk->past);
    if (member->bytes > MAX_MEMBER_BYTES)
        DT_FAIL(
            DT_ERR_DATA,
            "member %s of shard %s has %llu bytes; at most %llu (8 GiB) are accepted, as shards "
            "hold single images: leave it out",
            member->name, walk->path, (unsigned long long)member->bytes,
            (unsigned long long)MAX_MEMBER_BYTES);
    return DT_OK;
}

static dt_status visit_member(struct walk *walk, struct archive_entry *entry)
{
    const char *name = archive_entry_pathname(entry);
    struct dt_tar_member member = {.name = name ? name : archive_entry_pathname_utf8(entry),
                                   .offset = walk->first +
                                             (uint64_t)archive_filter_bytes(walk->archive, 0),
                                   .bytes = (uint64_t)archive_entry_size(entry),
                                   .fd = walk->fd};
    if (!member.name || !member.name[0] || strlen(member.name) > MAX_NAME)
        DT_FAIL(DT_ERR_DATA, "the member of shard %s at byte %llu has no name of 1 to %d bytes",
                walk->path, (unsigned long long)member.offset, MAX_NAME);
    if (dt_name_has_control(member.name))
        DT_FAIL(DT_ERR_DATA,
                "the member of shard %s at byte %llu has a control character in its name",
                walk->path, (unsigned long long)member.offset);
    if (archive_entry_sparse_count(entry) > 0)
        DT_FAIL(
            DT_ERR_DATA,
            "member %s of shard %s at byte %llu is sparse: its bytes do not lie together; write "
            "the shard again without --sparse",
            member.name, walk->path, (unsigned long long)member.offset);
    DT_TRY(check_place(walk, &member));
    walk->end = member.offset + (member.bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) ||
        archive_entry_symlink(entry)) {
        walk->n_skipped += archive_entry_filetype(entry) != AE_IFDIR;
        return DT_OK;
    }
    if (!dt_name_is_inside(member.name))
        DT_FAIL(DT_ERR_DATA, "member %s of shard %s at byte %llu leads out of the archive",
                member.name, walk->path, (unsigned long long)member.offset);
    return walk->visit(walk->context, &member);
}

/* Only zero blocks may follow the last member: otherwise a file cut between two members, or
 * archives joined by cat, would silently lose samples. */
static dt_status check_end(int fd, uint64_t end, uint64_t past, const char *path)
{
    char tail[READ_BLOCK];
    if (end + TAR_BLOCK > past)
        DT_FAIL(
            DT_ERR_DATA,
            "shard %s is truncated: it ends at byte %llu without an end-of-archive marker; copy "
            "or write it again",
            path, (unsigned long long)past);
    const uint64_t rest = past - end;
    const size_t bytes = rest < sizeof tail ? (size_t)rest : sizeof tail;
    DT_TRY(dt_file_pread(fd, tail, bytes, end, path));
    for (size_t i = 0; i < bytes; i++)
        if (tail[i])
            DT_FAIL(DT_ERR_DATA,
                    "shard %s has data after its end-of-archive marker, at byte %llu; was it "
                    "concatenated from several archives?",
                    path, (unsigned long long)(end + i));
    return DT_OK;
}

static dt_status walk_members(struct walk *walk)
{
    struct archive_entry *entry;
    archive_read_support_format_tar(walk->archive);
    if (archive_read_open_fd(walk->archive, walk->fd, READ_BLOCK) != ARCHIVE_OK)
        DT_FAIL(DT_ERR_DATA, "shard %s is not a tar archive: %s", walk->path,
                archive_error_string(walk->archive));
    for (int n_members = 0;; n_members++) {
        const int result = archive_read_next_header(walk->archive, &entry);
        if (result == ARCHIVE_EOF)
            break;
        /* A name in another character set is used unchanged; every other warning means that a
         * header was only partly understood: the name, size or offset may be wrong. */
        const char *text = archive_error_string(walk->archive);
        if (result != ARCHIVE_OK &&
            !(result == ARCHIVE_WARN && text && strstr(text, "can't be converted")))
            DT_FAIL(DT_ERR_DATA, "shard %s is damaged or truncated near byte %llu: %s", walk->path,
                    (unsigned long long)(walk->first +
                                         (uint64_t)archive_filter_bytes(walk->archive, 0)),
                    text);
        if (n_members >= MAX_MEMBERS)
            DT_FAIL(DT_ERR_DATA, "shard %s has more than %d members", walk->path, MAX_MEMBERS);
        DT_TRY(visit_member(walk, entry));
    }
    return check_end(walk->fd, walk->end, walk->past, walk->path);
}

dt_status dt_tar_walk_range(const char *path, const struct dt_tar_range *range, dt_tar_visit visit,
                            void *context, int *n_skipped)
{
    dt_status status = DT_OK;
    uint64_t file_bytes;
    struct walk walk = {.fd = -1, .path = path, .visit = visit, .context = context};
    /* libarchive converts pax names from UTF-8 to the locale's charset; only this thread is
     * affected. */
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    DT_TRY_OUT(dt_file_open(&walk.fd, &file_bytes, path));
    const struct dt_tar_range all = {0, file_bytes}, part = range ? *range : all;
    walk.first = walk.end = part.offset;
    walk.past = part.offset + part.bytes;
    if (lseek(walk.fd, (off_t)part.offset, SEEK_SET) < 0)
        DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "cannot seek to byte %llu of %s: %s",
                            (unsigned long long)part.offset, path, strerror(errno)));
    DT_TRY_OUT(refuse_compressed(walk.fd, part, path));
    walk.archive = archive_read_new();
    if (!walk.archive)
        DT_TRY_OUT(DT_ERROR(DT_ERR_MEMORY, "out of memory: cannot start reading shard %s", path));
    DT_TRY_OUT(walk_members(&walk));
    *n_skipped = walk.n_skipped;
out:
    if (walk.archive)
        archive_read_free(walk.archive);
    if (walk.fd >= 0)
        close(walk.fd);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return status;
}

dt_status dt_tar_walk(const char *path, dt_tar_visit visit, void *context, int *n_skipped)
{
    return dt_tar_walk_range(path, NULL, visit, context, n_skipped);
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
    int n_skipped;
    snprintf(out, bytes, "byte %llu", (unsigned long long)offset);
    if (dt_tar_walk(path, compare_offset, &search, &n_skipped) != DT_OK)
        dt_error_clear(); /* the name is for another message */
}
