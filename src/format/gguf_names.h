/* What the tensors of a DiffusionGemma GGUF, and of the mmproj file with its vision tower, are
 * called in the Hugging Face checkpoint. */
#ifndef DG_FORMAT_GGUF_NAMES_H
#define DG_FORMAT_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum { DG_GGUF_NAME = 256 }; /* room for any name, GGUF's or ours, with its NUL */

/* The Hugging Face name of a GGUF tensor; false, with the name as it is, when the model has none by
 * that name. `name` is at most 255 bytes long. */
bool dg_gguf_rename(char out[DG_GGUF_NAME], const char *name);

/* The way back, for the tensors of the language model: false when GGUF has no name for it. */
bool dg_gguf_name_of(char out[DG_GGUF_NAME], const char *name);

/* The same for the tensors of the vision tower, in an mmproj file. */
bool dg_gguf_vision_name_of(char out[DG_GGUF_NAME], const char *name);

/* Two of them that are not as the checkpoint has them, or not of its type: a convolution over
 * patches, [n, channel, row, column], and the tables of positions, always F32. */
#define DG_GGUF_PATCH     "v.patch_embd.weight"
#define DG_GGUF_POSITIONS "v.position_embd.weight"

/* For "blk.N.layer_output_scale.weight", the canvas's layer scalar: the name of the prompt's,
 * "blk.N.enc_layer_output_scale.weight". False for any other. */
bool dg_gguf_encoder_scalar(char out[DG_GGUF_NAME], const char *name);

/* For the "X.weight" of a matrix: "X.scale", the name that its own factors would have. False where
 * no such factors exist: not a matrix, or a name that means something else (the router's). */
bool dg_gguf_scale_name(char out[DG_GGUF_NAME], const char *name);

#endif
