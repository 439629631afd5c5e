#include "format/checkpoint.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/alloc.h"
#include "base/common.h"
#include "base/file.h"
#include "format/checkpoint_folder.h"
#include "format/checkpoint_quantisation.h"
#include "format/gguf_model.h"
#include "format/json_show.h"
#include "format/modules.h"
#include "format/safetensors.h"

#define CONFIG_NAME  "config.json"
#define WEIGHTS_NAME "model.safetensors"
#define INDEX_NAME   "model.safetensors.index.json"

static const size_t shard_max = 4096;

typedef struct shard {
    char *name; /* inside the folder */
    dg_file_map file;
    dg_safetensors content;
} shard;

typedef struct entry {
    dg_tensor tensor; /* first: dg_checkpoint_at returns its address */
    const char *from; /* its file */
} entry;

struct dg_checkpoint {
    char *dir; /* the folder, or the GGUF file */

    /* one of the two is empty */
    shard *shard; /* sorted by name */
    size_t n_shard;
    dg_gguf_model gguf;

    dg_modules modules; /* what a folder has in parts; the parts are no entries */
    entry *entry;       /* sorted by name */
    size_t n_entry;
};

/* ---- what a name is ---- */

static bool is_gguf(const char *path)
{
    if (dg_has_suffix(path, ".gguf"))
        return true;
    dg_file_map map;
    if (dg_file_map_open(&map, path, NULL))
        return false;
    bool found = map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    dg_file_map_close(&map);
    return found;
}

static dgemma_status no_memory(const char *path, dgemma_error *err)
{
    return dg_fail(err, DGEMMA_E_NOMEM, "%s: out of memory", path);
}

/* A GGUF file that a model begins with: neither the vision part of one nor a later shard. */
static bool is_gguf_model(const char *name, const char *suffix)
{
    int no = 1, count;
    return dg_has_suffix(name, suffix) && !strstr(name, "mmproj") &&
           !(dg_gguf_is_shard(name, &no, &count) && no != 1);
}

/* ---- which files ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Fills ck->shard with the different file names of the map. */
static dgemma_status name_shards(dg_checkpoint *ck, const char **file, size_t n, const char *where,
                                 dgemma_error *err)
{
    qsort(file, n, sizeof *file, compare_names);
    size_t n_file = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(file[i], file[i - 1]) != 0)
            file[n_file++] = file[i];
    if (n_file > shard_max)
        return dg_fail(err, DGEMMA_E_LIMIT, "%s: %zu shards, at most %zu are opened", where, n_file,
                       shard_max);

    ck->shard = dg_calloc(n_file, sizeof *ck->shard);
    if (!ck->shard)
        return no_memory(where, err);
    for (size_t i = 0; i < n_file; i++) {
        ck->shard[i].name = dg_strdup(file[i]);
        if (!ck->shard[i].name)
            return no_memory(where, err);
        ck->n_shard++;
    }
    return DGEMMA_OK;
}

static dgemma_status list_shards(dg_checkpoint *ck, json_t *map, const char *where,
                                 dgemma_error *err)
{
    size_t n = json_object_size(map), at = 0;
    if (n == 0)
        return dg_fail(err, DGEMMA_E_FORMAT,
                       "%s: \"weight_map\" is no object that says where tensors are", where);
    const char **file = dg_array(n, sizeof *file);
    if (!file)
        return no_memory(where, err);

    dgemma_status st = DGEMMA_OK;
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name || !dg_is_plain_name(name)) {
            char text[DG_JSON_SHOWN];
            st = dg_fail(err, DGEMMA_E_FORMAT,
                         "%s: \"weight_map\" puts %.150s in %s, not a file of this folder", where,
                         tensor, dg_json_show(text, value));
            break;
        }
        file[at++] = name;
    }
    if (!st)
        st = name_shards(ck, file, n, where, err);
    dg_free(file);
    return st;
}

/* ---- opening them ---- */

static dgemma_status open_shard(shard *s, const char *dir, dgemma_error *err)
{
    static const char lfs[] = "version https://git-lfs";
    char *path = dg_path_join(dir, s->name);
    if (!path)
        return no_memory(dir, err);
    dgemma_status st = dg_file_map_open(&s->file, path, err);
    if (!st && s->file.size >= sizeof lfs - 1 && memcmp(s->file.data, lfs, sizeof lfs - 1) == 0)
        st = dg_fail(err, DGEMMA_E_FORMAT,
                     "%s: a Git LFS pointer instead of the weights; fetch them with git lfs pull",
                     path);
    if (!st)
        st = dg_safetensors_parse(&s->content, s->file.data, s->file.size, path, err);
    dg_free(path);
    return st;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return strcmp(x->tensor.name, y->tensor.name);
}

static void add_entries(dg_checkpoint *ck, const dg_tensor *tensor, size_t n, const char *from)
{
    for (size_t i = 0; i < n; i++)
        ck->entry[ck->n_entry++] = (entry){.tensor = tensor[i], .from = from};
}

/* In the order of names, of which each is there once. */
static dgemma_status sort_entries(dg_checkpoint *ck, dgemma_error *err)
{
    qsort(ck->entry, ck->n_entry, sizeof *ck->entry, compare_entries);
    for (size_t i = 1; i < ck->n_entry; i++) {
        const entry *a = &ck->entry[i - 1], *b = &ck->entry[i];
        if (compare_entries(a, b) == 0)
            return dg_fail(err, DGEMMA_E_FORMAT, "%s: tensor %.150s is in both %.100s and %.100s",
                           ck->dir, a->tensor.name, a->from, b->from);
    }
    return DGEMMA_OK;
}

/* One list of all tensors. */
static dgemma_status merge(dg_checkpoint *ck, dgemma_error *err)
{
    size_t total = ck->gguf.n_tensor; /* cannot overflow: each took bytes of a mapped file */
    for (size_t i = 0; i < ck->n_shard; i++)
        total += ck->shard[i].content.n_tensor;
    ck->entry = dg_array(total, sizeof *ck->entry);
    if (!ck->entry)
        return no_memory(ck->dir, err);

    for (size_t i = 0; i < ck->n_shard; i++) {
        const shard *s = &ck->shard[i];
        add_entries(ck, s->content.tensor, s->content.n_tensor, s->name);
    }
    add_entries(ck, ck->gguf.tensor, ck->gguf.n_tensor, "the file");
    return sort_entries(ck, err);
}

static const entry *find_entry(const dg_checkpoint *ck, const char *name)
{
    entry key = {.tensor.name = name};
    return bsearch(&key, ck->entry, ck->n_entry, sizeof *ck->entry, compare_entries);
}

/* Everything the index lists is where it says. */
static dgemma_status check_index(const dg_checkpoint *ck, json_t *map, const char *where,
                                 dgemma_error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(map, tensor, value)
    {
        const char *file = json_string_value(value);
        const entry *e = find_entry(ck, tensor);
        if (!e || strcmp(e->from, file) != 0)
            return dg_fail(err, DGEMMA_E_FORMAT,
                           "%s: tensor %.150s should be in %.100s but is not there", where, tensor,
                           file);
    }
    return DGEMMA_OK;
}

static dgemma_status open_shards(dg_checkpoint *ck, dgemma_error *err)
{
    for (size_t i = 0; i < ck->n_shard; i++) {
        dgemma_status st = open_shard(&ck->shard[i], ck->dir, err);
        if (st)
            return st;
    }
    return merge(ck, err);
}

static dgemma_status open_single(dg_checkpoint *ck, const char *name, dgemma_error *err)
{
    dgemma_status st = name_shards(ck, &name, 1, ck->dir, err);
    return st ? st : open_shards(ck, err);
}

static dgemma_status no_weights(const char *dir, dgemma_error *err)
{
    static const char *const other[] = {".bin", ".pth", ".pt"};
    for (size_t i = 0; i < DG_COUNT(other); i++) {
        dg_listing found = dg_folder_list_suffix(dir, other[i]);
        if (!found.name)
            continue;
        dgemma_status st =
            dg_fail(err, DGEMMA_E_UNSUPPORTED, "%s: holds %.100s; safetensors and GGUF are read",
                    dir, found.name);
        dg_free(found.name);
        return st;
    }
    return dg_fail(err, DGEMMA_E_IO,
                   "%s: no weights%s here: looked for " WEIGHTS_NAME ", " INDEX_NAME
                   ", a single *.safetensors and a *.gguf",
                   dir, dg_file_exists_in(dir, CONFIG_NAME) ? "" : " and no " CONFIG_NAME);
}

/* Takes `path`, which becomes the checkpoint's place. */
static dgemma_status open_gguf(dg_checkpoint *ck, char *path, dgemma_error *err)
{
    dg_free(ck->dir);
    ck->dir = path;
    dgemma_status st = dg_gguf_model_open(&ck->gguf, path, err);
    return st ? st : merge(ck, err);
}

/* A folder without safetensors: its only GGUF model. */
static dgemma_status open_lone_gguf(dg_checkpoint *ck, dgemma_error *err)
{
    dg_listing found = dg_folder_list(ck->dir, is_gguf_model, ".gguf");
    char *path = found.n == 1 && found.name ? dg_path_join(ck->dir, found.name) : NULL;
    dg_free(found.name);
    if (found.n == 0)
        return no_weights(ck->dir, err);
    if (found.n > 1)
        return dg_fail(err, DGEMMA_E_ARG, "%s: %zu GGUF models; give the file of one", ck->dir,
                       found.n);
    return path ? open_gguf(ck, path, err) : no_memory(ck->dir, err);
}

/* A folder without the usual names: its only safetensors file. */
static dgemma_status open_lone(dg_checkpoint *ck, dgemma_error *err)
{
    dg_listing found = dg_folder_list_suffix(ck->dir, ".safetensors");
    dgemma_status st;
    if (found.n == 0)
        st = open_lone_gguf(ck, err);
    else if (found.n > 1)
        st = dg_fail(err, DGEMMA_E_IO,
                     "%s: %zu safetensors files and no " INDEX_NAME " that says what is where",
                     ck->dir, found.n);
    else
        st = found.name ? open_single(ck, found.name, err) : no_memory(ck->dir, err);
    dg_free(found.name);
    return st;
}

static dgemma_status open_indexed(dg_checkpoint *ck, dgemma_error *err)
{
    char *where = dg_path_join(ck->dir, INDEX_NAME);
    if (!where)
        return no_memory(ck->dir, err);
    json_t *index = NULL;
    dgemma_status st = dg_folder_json(&index, ck->dir, INDEX_NAME, err);
    json_t *map = json_object_get(index, "weight_map");
    if (!st)
        st = list_shards(ck, map, where, err);
    if (!st)
        st = open_shards(ck, err);
    if (!st)
        st = check_index(ck, map, where, err);
    json_decref(index);
    dg_free(where);
    return st;
}

/* ---- quantised folders ---- */

/* Puts tensors in the place of their parts. */
static dgemma_status replace_parts(dg_checkpoint *ck, dgemma_error *err)
{
    const dg_modules *m = &ck->modules;
    size_t n = 0;
    if (!m->n_tensor)
        return DGEMMA_OK;
    for (size_t i = 0; i < ck->n_entry; i++)
        if (!m->used[i])
            ck->entry[n++] = ck->entry[i];
    ck->n_entry = n; /* each tensor had a part: there is room */
    add_entries(ck, m->tensor, m->n_tensor, "its parts");
    return sort_entries(ck, err);
}

static dgemma_status join_modules(dg_checkpoint *ck, dgemma_error *err)
{
    dg_tensor *part = dg_array(ck->n_entry, sizeof *part);
    if (!part)
        return no_memory(ck->dir, err);
    for (size_t i = 0; i < ck->n_entry; i++)
        part[i] = ck->entry[i].tensor;
    dg_quantisation q;
    dgemma_status st = dg_quantisation_find(&q, ck->dir, err);
    if (!st)
        st = dg_modules_join(&ck->modules, part, ck->n_entry, &q, ck->dir, err);
    dg_free(part);
    return st ? st : replace_parts(ck, err);
}

dgemma_status dg_checkpoint_open(dg_checkpoint **out, const char *path, dgemma_error *err)
{
    *out = NULL;
    dg_checkpoint *ck = dg_calloc(1, sizeof *ck);
    if (!ck)
        return no_memory(path, err);

    dgemma_status st;
    if (!dg_file_is_dir(path) && is_gguf(path)) {
        char *file = dg_strdup(path);
        st = file ? open_gguf(ck, file, err) : no_memory(path, err);
        if (st)
            goto fail;
        *out = ck;
        return DGEMMA_OK;
    }
    st = dg_folder_find(&ck->dir, path, err);
    if (st)
        goto fail;
    if (dg_file_exists_in(ck->dir, WEIGHTS_NAME))
        st = open_single(ck, WEIGHTS_NAME, err);
    else if (dg_file_exists_in(ck->dir, INDEX_NAME))
        st = open_indexed(ck, err);
    else
        st = open_lone(ck, err);
    if (!st && ck->n_shard)
        st = join_modules(ck, err);
    if (st)
        goto fail;
    *out = ck;
    return DGEMMA_OK;

fail:
    dg_checkpoint_close(ck);
    return st;
}

dgemma_status dg_checkpoint_of(dg_checkpoint **out, const char *name, const dg_tensor *tensor,
                               size_t n, dgemma_error *err)
{
    dg_checkpoint *ck = dg_calloc(1, sizeof *ck);
    if (ck) {
        ck->dir = dg_strdup(name);
        ck->entry = dg_calloc(n, sizeof *ck->entry);
    }
    if (!ck || !ck->dir || !ck->entry) {
        dg_checkpoint_close(ck);
        return dg_fail(err, DGEMMA_E_NOMEM, "out of memory");
    }
    ck->n_entry = n;
    for (size_t i = 0; i < n; i++)
        ck->entry[i] = (entry){tensor[i], ck->dir};
    qsort(ck->entry, n, sizeof *ck->entry, compare_entries);
    *out = ck;
    return DGEMMA_OK;
}

void dg_checkpoint_close(dg_checkpoint *ck)
{
    if (!ck)
        return;
    for (size_t i = 0; i < ck->n_shard; i++) {
        dg_safetensors_clear(&ck->shard[i].content);
        dg_file_map_close(&ck->shard[i].file);
        dg_free(ck->shard[i].name);
    }
    dg_free(ck->shard);
    dg_gguf_model_close(&ck->gguf);
    dg_modules_clear(&ck->modules);
    dg_free(ck->entry);
    dg_free(ck->dir);
    dg_free(ck);
}

bool dg_checkpoint_patch(dg_checkpoint *ck, const void *address)
{
    for (size_t i = 0; i < ck->n_shard; i++)
        if (dg_file_map_patch(&ck->shard[i].file, address))
            return true;
    for (size_t i = 0; i < ck->gguf.n_file; i++)
        if (dg_file_map_patch(&ck->gguf.file[i].map, address))
            return true;
    return false;
}

static dgemma_status check_shard(const dg_checkpoint *ck, const shard *s, dgemma_error *err)
{
    char *path = dg_path_join(ck->dir, s->name);
    dgemma_status st = path ? dg_file_map_check(&s->file, path, err) : no_memory(ck->dir, err);
    dg_free(path);
    return st;
}

dgemma_status dg_checkpoint_check(const dg_checkpoint *ck, dgemma_error *err)
{
    dgemma_status st = DGEMMA_OK;
    for (size_t i = 0; !st && i < ck->n_shard; i++)
        st = check_shard(ck, &ck->shard[i], err);
    for (size_t i = 0; !st && i < ck->gguf.n_file; i++)
        st = dg_file_map_check(&ck->gguf.file[i].map, ck->gguf.file[i].path, err);
    return st;
}

static bool has_piece(const dg_file_map *map, const dg_tensor *t)
{
    const size_t n = t->n_dim == 3 ? (size_t)t->shape[0] : 1;
    for (size_t i = 0; i < n; i++) {
        const uintptr_t at = (uintptr_t)t->pieces->piece[i].values, start = (uintptr_t)map->data;
        if (at >= start && at - start < map->size)
            return true;
    }
    return false;
}

void dg_checkpoint_forget(const dg_checkpoint *ck, const dg_tensor *t)
{
    for (size_t i = 0; i < ck->n_shard; i++) {
        const dg_file_map *map = &ck->shard[i].file;
        if (!t->pieces)
            dg_file_map_forget(map, t->data, t->bytes);
        else if (has_piece(map, t))
            dg_file_map_forget(map, map->data, map->size);
    }
    for (size_t i = 0; i < ck->gguf.n_file; i++)
        dg_file_map_forget(&ck->gguf.file[i].map, t->data, t->bytes);
}

/* What a folder has beside its weights. */
static bool is_document(const dg_checkpoint *ck, const char *path)
{
    static const char *const name[] = {CONFIG_NAME,
                                       INDEX_NAME,
                                       "generation_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "chat_template.jinja",
                                       "hf_quant_config.json"};
    bool found = false;
    for (size_t i = 0; !found && i < DG_COUNT(name); i++) {
        char *document = dg_path_join(ck->dir, name[i]);
        found = !document || dg_file_is_same(document, path);
        dg_free(document);
    }
    return found;
}

bool dg_checkpoint_reads(const dg_checkpoint *ck, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return false;
    bool found = ck->n_shard && is_document(ck, path);
    for (size_t i = 0; i < ck->n_shard; i++)
        found |= dg_file_map_is(&ck->shard[i].file, &info);
    for (size_t i = 0; i < ck->gguf.n_file; i++)
        found |= dg_file_map_is(&ck->gguf.file[i].map, &info);
    return found;
}

const char *dg_checkpoint_dir(const dg_checkpoint *ck)
{
    return ck->dir;
}

size_t dg_checkpoint_count(const dg_checkpoint *ck)
{
    return ck->n_entry;
}

const dg_tensor *dg_checkpoint_at(const dg_checkpoint *ck, size_t i)
{
    return &ck->entry[i].tensor;
}

const dg_tensor *dg_checkpoint_find(const dg_checkpoint *ck, const char *name)
{
    const entry *e = find_entry(ck, name);
    return e ? &e->tensor : NULL;
}

char *dg_checkpoint_path(const dg_checkpoint *ck, const char *name, dgemma_error *err)
{
    char *path = dg_path_join(ck->dir, name);
    if (!path)
        no_memory(ck->dir, err);
    return path;
}

dgemma_status dg_checkpoint_document(const dg_checkpoint *ck, const char *name, dg_buf *out,
                                     dgemma_error *err)
{
    if (!dg_checkpoint_has_document(ck, name))
        return dg_fail(err, DGEMMA_E_IO,
                       "%s: no %s in the folder; copy it there from the published checkpoint",
                       ck->dir, name);
    char *path = dg_checkpoint_path(ck, name, err);
    dgemma_status st = path ? dg_file_read_regular(out, path, err) : DGEMMA_E_NOMEM;
    dg_free(path);
    return st;
}

bool dg_checkpoint_has_document(const dg_checkpoint *ck, const char *name)
{
    return !dg_checkpoint_gguf(ck) && dg_file_exists_in(ck->dir, name);
}

const dg_gguf *dg_checkpoint_gguf(const dg_checkpoint *ck)
{
    return ck->gguf.n_file ? &ck->gguf.file[0].content : NULL;
}
