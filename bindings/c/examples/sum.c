/* Every rank adds its number to those of the others.
 * cc sum.c $(pkg-config --cflags --libs maypole) -o sum && maypole run -n 4 ./sum */
#include <maypole.h>
#include <stdio.h>

int main(void) {
    maypole_comm_t comm;
    if (maypole_init(&comm) != MAYPOLE_SUCCESS) {
        fprintf(stderr, "%s\n", maypole_last_error());
        return 1;
    }
    float number = 1.0f + (float)maypole_rank(comm);
    if (maypole_all_reduce(&number, &number, 1, MAYPOLE_FLOAT32, MAYPOLE_SUM, comm) != MAYPOLE_SUCCESS) {
        fprintf(stderr, "%s\n", maypole_last_error());
        return 1;
    }
    printf("rank %d of %d: %g\n", (int)maypole_rank(comm), (int)maypole_world(comm), (double)number);
    return maypole_close(comm) == MAYPOLE_SUCCESS ? 0 : 1;
}
