/* replay.c: runs a fuzz target over a corpus without libFuzzer, in every build.
 *
 *   replay_TARGET DIRECTORY|FILE...
 *
 * Each input is tried as it is, cut short at many lengths, and with single bytes changed; it always
 * ends right before an inaccessible page, so that reading past its end crashes in builds without
 * sanitizers too. No randomness: the same corpus gives the same calls. */
#include "fuzz/target.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define INPUT_MAX_BYTES ((size_t)1 << 20)
#define VARIANTS        256 /* cuts, and changed bytes, for each input */

static uint8_t *room; /* INPUT_MAX_BYTES bytes, then the guard page */
static size_t n_files, n_calls;

static void make_room(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    room = mmap(NULL, INPUT_MAX_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                -1, 0);
    if (room == MAP_FAILED || mprotect(room + INPUT_MAX_BYTES, page, PROT_NONE) != 0) {
        perror("replay: guard page");
        exit(1);
    }
}

static void call(const uint8_t *p, size_t n)
{
    uint8_t *at = room + INPUT_MAX_BYTES - n;
    memmove(at, p, n);
    LLVMFuzzerTestOneInput(at, n);
    n_calls++;
}

static void variants(uint8_t *p, size_t n)
{
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    call(p, n);
    size_t step = n / VARIANTS + 1;
    for (size_t cut = 0; cut < n; cut += step)
        call(p, cut);
    for (size_t at = 0; at < n; at += step) {
        uint8_t old = p[at];
        for (size_t i = 0; i < sizeof flips; i++) {
            p[at] = old ^ flips[i];
            call(p, n);
        }
        p[at] = old;
    }
}

static void replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p = malloc(INPUT_MAX_BYTES);
    if (!f || !p) {
        perror(path);
        exit(1);
    }
    size_t n = fread(p, 1, INPUT_MAX_BYTES, f);
    int bad = ferror(f);
    fclose(f);
    if (bad) {
        fprintf(stderr, "replay: cannot read %s\n", path);
        exit(1);
    }
    variants(p, n);
    free(p);
    n_files++;
}

static void replay_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        replay_file(path);
        return;
    }
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char full[4096];
        snprintf(full, sizeof full, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.')
            replay_path(full);
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    make_room();
    for (int i = 1; i < argc; i++)
        replay_path(argv[i]);
    printf("%zu files, %zu calls\n", n_files, n_calls);
    return n_files ? 0 : 1; /* an empty corpus tests nothing */
}
