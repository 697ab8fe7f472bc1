// The module of one type of numbers: every kernel of every layer, with -DREAL=float or
// -DREAL=double.
#include "layer.h"
#include "sums.h"
#include "product.cu"
#include "bias.cu"
#include "norm.cu"
#include "rms_norm.cu"
#include "rotary.cu"
#include "softmax.cu"
#include "activation.cu"
#include "embed.cu"
#include "loss.cu"
