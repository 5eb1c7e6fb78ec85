#include "io/drives.h"

int io_drives_find(struct io_drives *d, int most, const struct io_file *f)
{
    uint64_t id = io_file_drive(f);
    for (int i = 0; i < d->n; i++)
        if (d->id[i] == id)
            return i;
    if (d->n == most)
        return most - 1;
    d->id[d->n] = id;
    return d->n++;
}
