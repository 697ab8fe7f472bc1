// The nonlinearities of feed-forward parts, number by number: GELU in its tanh form, and SwiGLU.

DEVICE REAL gelu_tanh(REAL x) {
    REAL inner = (REAL)0.7978845608028654 * (x + (REAL)0.044715 * x * x * x);
    return (REAL)1 - (REAL)2 / (exponential((REAL)2 * inner) + (REAL)1);
}

KERNEL(gelu, 256)(REAL* y, const REAL* x, u64 count) {
    u64 at = element();
    if (at < count) y[at] = (REAL)0.5 * x[at] * ((REAL)1 + gelu_tanh(x[at]));
}

// dx *= the derivative at x.
KERNEL(gelu_backward, 256)(REAL* dx, const REAL* x, u64 count) {
    u64 at = element();
    if (at >= count) return;
    REAL t = gelu_tanh(x[at]);
    REAL inner = (REAL)0.7978845608028654 * ((REAL)1 + (REAL)(3 * 0.044715) * x[at] * x[at]);
    dx[at] *= (REAL)0.5 * ((REAL)1 + t) + (REAL)0.5 * x[at] * ((REAL)1 - t * t) * inner;
}

DEVICE REAL sigmoid(REAL x) { return (REAL)1 / ((REAL)1 + exponential(-x)); }

KERNEL(swiglu, 256)(REAL* y, const REAL* gate, const REAL* up, u64 count) {
    u64 at = element();
    if (at < count) y[at] = gate[at] * sigmoid(gate[at]) * up[at];
}

// dup comes in as the gradient of y.
KERNEL(swiglu_backward, 256)(
    REAL* dgate, REAL* dup, const REAL* gate, const REAL* up, u64 count) {
    u64 at = element();
    if (at >= count) return;
    REAL share = sigmoid(gate[at]);
    REAL dy = dup[at];
    dgate[at] = dy * up[at] * share * ((REAL)1 + gate[at] * ((REAL)1 - share));
    dup[at] = dy * gate[at] * share;
}
