/* text_file.h: small text files of the system (/proc, /sys), whole. */
#ifndef BASE_TEXT_FILE_H
#define BASE_TEXT_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* The file at root + path, terminated, to be given to mem_free; NULL when it cannot be read, is
 * larger than 4 MiB or there is no memory. */
char *text_file_read(const char *root, const char *path);

/* Of a PSI file, the total of the line "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" in
 * microseconds (the kernel's psi.rst); false when it has none. */
bool text_file_pressure(const char *text, uint64_t *us);

#endif
