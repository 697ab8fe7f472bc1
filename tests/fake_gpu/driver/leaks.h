// Resources that a process has not freed.
#pragma once

namespace fake {

// Prints one line on standard error if anything is left.
void report_leaks();

}
