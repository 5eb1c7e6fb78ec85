/* pack_lock.c: one pack at a time writes into a directory, and first removes what killed ones left.
 */
#include "cli/pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Names that outfile gives while a file is being written. */
static bool is_left_over(const char *name)
{
    const char *tmp = strstr(name, ".tmp.");
    const bool ours = strncmp(name, "layer_", 6) == 0 ||
                      strncmp(name, "unfinished.json", 15) == 0 ||
                      strncmp(name, PACKED_MANIFEST, strlen(PACKED_MANIFEST)) == 0;
    return ours && tmp && tmp[5] != '\0' && strspn(tmp + 5, "0123456789-") == strlen(tmp + 5);
}

static void remove_left_overs(const char *dir)
{
    char path[PATH_MAX];
    DIR *d = opendir(dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        int n = snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (is_left_over(e->d_name) && n > 0 && (size_t)n < sizeof path)
            (void)unlink(path); /* what stays costs room, which is checked elsewhere */
    }
    if (d)
        closedir(d);
}

int pack_lock_take(const char *dir, const char *folder, int *lock, struct sl_err *err)
{
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*lock < 0)
        return err_file(err, SL_E_IO, dir, errno, "cannot open the directory");
    if (flock(*lock, LOCK_EX | LOCK_NB) == 0) {
        remove_left_overs(dir);
        remove_left_overs(folder);
        return 0;
    }
    if (errno == EWOULDBLOCK)
        return err_file(err, SL_E_IO, dir, 0,
                        "another sluice pack is writing there: wait until it has ended");
    return 0; /* a file system without locks: nobody can be told apart, nothing is removed */
}

void pack_lock_release(int *lock)
{
    if (*lock >= 0)
        close(*lock);
    *lock = -1;
}
