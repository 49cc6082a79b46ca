// The program that the tests on the host use with files that only look like these.
#include "../../../../cmd/ibvtrace/testdata/c/arrives.c"
