/* The lines of a trace, in the format of MAYPOLE_NCCL_TRACE (README.md). A line is a call:
 *
 *   thread communicator function count type op peer placement stream capturing depth result details
 *
 * Handwritten traces are for worlds of any size, so they extend the format:
 *
 *   ~N as a count     a number below N that changes with each message, equal on both its ranks
 *   +1, -1 as a peer  the rank after, and the one before
 *   * as a peer       the lines with a * that follow one another are done for each rank in turn
 *   color=half|even|own|first|none in the details of CommSplit
 *
 * and other commands of a program:
 *
 *   @wait STREAM        waits for the stream, and checks the results of its calls
 *   @order FROM INTO    later work of INTO comes after the work of FROM so far, by an event
 *   @capture STREAM     begins to capture calls on the stream in a graph
 *   @end STREAM         the graph is ready
 *   @launch STREAM N    launches the graph so often
 *   @free               destroys the graph
 *   @repeat N, @again   does the lines between them so often
 *   @rank R LINE        the line is for that rank only
 *   @meet               all ranks wait for one another
 */
#ifndef LINES_H_
#define LINES_H_

#include "numbers.h"

enum { STREAMS = 8, COMMS = 8 };

struct line {
    char text[200];
    int thread, comm, stream, depth, result;
    char function[32], count[16], type[16], op[24], peer[8], placement[24], details[80];
};

HELPER int find_name(const char *name, const char *const *names, int count) {
    for (int nth = 0; nth < count; nth++) {
        if (!strcmp(name, names[nth])) return nth;
    }
    return -1;
}

HELPER ncclDataType_t type_of(const struct line *line) {
    int type = find_name(line->type, TYPES, ncclNumTypes);
    if (type < 0) FAIL("no type: %s", line->text);
    return (ncclDataType_t)type;
}

HELPER bool has(const struct line *line, const char *detail) {
    return strstr(line->details, detail);
}

HELPER int number_in(const struct line *line, const char *name, int otherwise) {
    const char *found = strstr(line->details, name);
    return found ? atoi(found + strlen(name)) : otherwise;
}

/* The words of a line, of which some are left out by a `-`. */
HELPER void parse(struct line *line) {
    char comm[16], stream[16], result[16], capturing[8];
    int found =
        sscanf(line->text, "%d %15s %31s %15s %15s %23s %7s %23s %15s %7s %d %15s %79s",
               &line->thread, comm, line->function, line->count, line->type, line->op, line->peer,
               line->placement, stream, capturing, &line->depth, result, line->details);
    if (found < 12) FAIL("not a line: %s", line->text);
    line->comm = comm[0] == '-' ? -1 : atoi(comm);
    line->stream = stream[0] == '-' ? 0 : atoi(stream);
    line->result = atoi(result);
    CHECK(line->comm < COMMS && line->stream < STREAMS);
}

#endif
