/* text_file.h: small text files of the system (/proc, /sys), whole. */
#ifndef BASE_TEXT_FILE_H
#define BASE_TEXT_FILE_H

/* The file at root + path, terminated, to be given to mem_free; NULL when it cannot be read, is
 * larger than 4 MiB or there is no memory. */
char *text_file_read(const char *root, const char *path);

#endif
