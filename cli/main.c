#include "sluice.h"

int main(void)
{
    return 0;
}
