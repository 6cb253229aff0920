/* As much of numba's runtime as kernels use: memory blocks with a count of references in front. */
#include <stdint.h>
#include <stdlib.h>

typedef struct block {
    size_t references;
    void (*destroy)(void *, size_t, void *);
    void *destroy_info, *data;
    size_t size;
    void *allocator;
} block;

void *NRT_Allocate(size_t size) { return malloc(size); }
void NRT_Free(void *memory) { free(memory); }

void NRT_MemInfo_call_dtor(block *one) {
    if (one->destroy) one->destroy(one->data, one->size, one->destroy_info);
    free(one);
}

void *NRT_MemInfo_alloc_aligned(size_t size, unsigned align) {
    block *one = malloc(sizeof(block) + align + size);
    if (!one) return NULL;
    *one = (block){1, NULL, NULL, (void *)(((uintptr_t)(one + 1) + align - 1) / align * align), size, NULL};
    return one;
}

void *NRT_MemInfo_alloc(size_t size) { return NRT_MemInfo_alloc_aligned(size, 16); }

static void destroy_separate(void *data, size_t size, void *destroy_items) {
    (void)size;
    if (destroy_items) ((void (*)(void *))destroy_items)(data);
    free(data);
}

void *NRT_MemInfo_new_varsize_dtor(size_t size, void *destroy_items) {
    block *one = malloc(sizeof(block));
    if (!one) return NULL;
    *one = (block){1, destroy_separate, destroy_items, malloc(size), size, NULL};
    return one;
}

/* Contiguous arrays only, which is all that kernels reshape. */
int numba_attempt_nocopy_reshape(intptr_t nd, const intptr_t *dims, const intptr_t *strides, intptr_t new_nd,
                                 const intptr_t *new_dims, intptr_t *new_strides, intptr_t itemsize, int is_fortran) {
    intptr_t step = itemsize;
    if (is_fortran) return 0;
    for (intptr_t i = nd - 1; i >= 0; i--) {
        if (dims[i] > 1 && strides[i] != step) return 0;
        step *= dims[i];
    }
    step = itemsize;
    for (intptr_t i = new_nd - 1; i >= 0; i--) {
        new_strides[i] = step;
        step *= new_dims[i];
    }
    return 1;
}
