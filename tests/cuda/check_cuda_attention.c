#include "cuda/cuda_check.h"
void check_cuda_attention(void)
{
}
