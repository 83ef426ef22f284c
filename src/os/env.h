/* The environment: the only room that reads it. */
#ifndef TRI_OS_ENV_H
#define TRI_OS_ENV_H

/* The value of a variable; NULL when it is not set. */
const char *tri_env(const char *name);

#endif
