/* A locale whose decimal point is a comma, made where the sources of one are installed. */
#ifndef TEST_COMMA_H
#define TEST_COMMA_H

#include "tests/support/command.h"
#include <locale.h>

/* Sets it, by the name "comma" for setlocale; 0: this machine cannot make one. */
static int comma_begin(void)
{
    char path[512], number[32];
    snprintf(path, sizeof path, "%s", test_tmp("locale"));
    return run("rm -rf %s; mkdir %s && localedef -i de_DE -f UTF-8 %s/comma", path, path, path) <=
               1 &&
           setenv("LOCPATH", path, 1) == 0 && setlocale(LC_NUMERIC, "comma") &&
           snprintf(number, sizeof number, "%g", 0.5) == 3 && strcmp(number, "0,5") == 0;
}

static void comma_end(void)
{
    setlocale(LC_NUMERIC, "C");
    unsetenv("LOCPATH");
}

#endif
