/* Cases of the operations between the matrices. Included by kernels_cases.h. */
#ifndef TRI_TESTS_KERNELS_LAYER_CASES_H
#define TRI_TESTS_KERNELS_LAYER_CASES_H

#define LAYER_CASES

#endif
