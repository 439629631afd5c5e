# dgemma: one GNU Makefile; the source lists below read as the architecture.
#
#   make            build/dgemma and the libraries
#   make run        set up, build, chat; without a terminal, answer three sample prompts
#   make test       set up, build, run every test
#   make help       the other targets and the variables
#
# Each configuration has its own folder under build/; only the plain release build leaves build/dgemma.

MAKEFLAGS += --no-builtin-rules
# As many jobs as there are processors, unless told.
ifeq ($(filter -j% --jobs%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(or $(shell nproc 2>/dev/null),1)
endif
.DEFAULT_GOAL := all

# ---- what can be set: make NAME=VALUE (see `make help`) ----

CC           ?= cc
AR           ?= ar
SAN          ?=
WERROR       ?=
PREFIX       ?= /usr/local
DESTDIR      ?=
FUZZ_SECONDS ?= 60
FUZZ_CC      ?= clang
FFMPEG       ?=
CURL         ?=
SQLITE       ?=

# `make run`: another model than the one that comes with dgemma, and options for the program.
RUN_MODEL ?=
RUN_ARGS  ?=

# CUDA: 1 where nvcc is found, 0 leaves the backend out; `emulated` runs its kernels on the host, thread by thread,
# which is slow and for tests. CUDA_ARCHS: compute capabilities to compile for, minutes each on a small machine; without a
# word from you those of the GPUs that are here, and where none is, the two most common. `all` is for packages; 80 runs on
# 86 and 89 too; those that nvcc does not know are left out.
NVCC       ?= nvcc
CUDA       ?= $(if $(shell command -v $(NVCC) 2>/dev/null),1,0)
CUDA_ARCHS ?= $(or $(CUDA_HERE),80 90a)
CUDA_EVERY := 80 90a 100 120
CUDA_HERE   = $(sort $(patsubst 8%,80,$(patsubst 90,90a,$(subst .,,$(filter-out 5.% 6.% 7.%,$(shell nvidia-smi --query-gpu=compute_cap --format=csv$(comma)noheader 2>/dev/null))))))

# build/release, or a name made of what differs from it: build/clang, build/address-undefined, …
comma := ,
empty :=
space := $(empty) $(empty)
CFG   ?= $(or $(subst $(space),-,$(strip $(if $(findstring clang,$(CC)),clang) $(filter emulated,$(CUDA)) $(subst $(comma),-,$(SAN)))),release)
BUILD := build/$(CFG)

# ---- the library, from the bottom up ----

TARGET  := $(shell $(CC) -dumpmachine)
VERSION := $(shell sed -n 's/^.define DGEMMA_VERSION "\(.*\)"/\1/p' include/dgemma.h)
SOVER   := $(firstword $(subst ., ,$(VERSION)))

SRC_base      := $(wildcard src/base/*.c)
SRC_tensor    := $(wildcard src/tensor/*.c)
SRC_text      := $(wildcard src/text/*.c)
SRC_constraint := $(wildcard src/constraint/*.c)
SRC_image     := $(wildcard src/image/*.c)
SRC_diffusion := $(wildcard src/diffusion/*.c)
SRC_format    := $(wildcard src/format/*.c)
SRC_backend   := $(wildcard src/backend/*.c)
SRC_cpu       := $(wildcard src/cpu/*.c src/cpu/ref/*.c)
ifneq ($(filter aarch64-%,$(TARGET)),)
SRC_cpu       += $(wildcard src/cpu/arm/*.c)
endif
ifneq ($(filter x86_64-%,$(TARGET)),)
SRC_cpu       += $(wildcard src/cpu/x86/*.c)
endif
SRC_cuda      := $(if $(filter 0,$(CUDA)),,$(wildcard src/cuda/*.c))
SRC_model     := $(wildcard src/model/*.c)
SRC_engine    := $(wildcard src/engine/*.c)
SRC_convert   := $(wildcard src/convert/*.c)
SRC_decide    := $(wildcard src/decide/*.c)
SRC_bench_lib := $(wildcard src/bench/*.c)
SRC_api       := $(wildcard src/*.c)

SRC_lib := $(SRC_base) $(SRC_tensor) $(SRC_text) $(SRC_constraint) $(SRC_image) $(SRC_diffusion) $(SRC_format) \
           $(SRC_backend) $(SRC_cpu) $(SRC_cuda) $(SRC_model) $(SRC_engine) $(SRC_convert) $(SRC_decide) $(SRC_bench_lib) $(SRC_api)

# ---- the program, and the tests ----

SRC_server  := $(wildcard server/*.c)
# In the order in which they are joined.
SRC_ui      := $(patsubst %,ui/%.js,dom highlight markdown store stream canvas_panel messages attach chats rewrite models settings app)
SRC_cli     := $(wildcard cli/*.c)
SRC_support := $(wildcard tests/support/*.c)
SRC_unit    := $(wildcard tests/unit/*.c)
SRC_kernels := $(wildcard tests/kernels/*.c)
SRC_golden  := $(wildcard tests/golden/*.c)
SRC_pty     := $(wildcard tests/pty/*.c)
SRC_fuzz    := $(wildcard tests/fuzz/fuzz_*.c)
SRC_replay  := tests/fuzz/replay_main.c
# Parts of the program that tests look at from inside, and the screen they are looked at on.
SRC_view    := cli/cells.c cli/canvas_view.c cli/chat_log.c tests/pty/vt_screen.c
SRC_bench   := $(wildcard bench/*.c)
# The arithmetic of the CUDA backend, which also runs on the host, thread by thread; see tests/cuda/emulated.
SRC_cuda_math := $(wildcard src/cuda/*.cu)
SRC_cuda_test := $(wildcard tests/cuda/*.c)
SRC_emulated  := $(SRC_cuda_math) $(wildcard tests/cuda/*.cu tests/cuda/emulated/*.cpp)
SRC_pocket  := $(wildcard tests/pocket/*.c)
# Engines on the emulated device: the backend's host side beside the kernels.
SRC_device_test := $(wildcard tests/device/*.c)
SRC_emulated_c  := $(wildcard src/cuda/*.c) src/engine/device.c

# ---- flags ----

WARN = -Wall -Wextra -Wshadow -Wconversion -Wvla -Wmissing-prototypes -Wstrict-prototypes \
       $(if $(WERROR),-Werror)
OPT  = -O2
ISA  =
SANITIZE = $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
INCLUDES = -Iinclude -Isrc
DEFINES  =

# Libraries are asked for when a recipe runs, by which time `deps` has put pkg-config in place.
# FFmpeg's, for video, are used where their headers are found, and loaded with the first video; FFMPEG=no
# leaves them out. libcurl, for pictures that a server is asked to fetch, likewise (CURL=no); and SQLite, for what it
# keeps (SQLITE=no). giflib has no .pc file.
PKGS       = jansson libpng libjpeg libwebp libwebpdemux libxxhash
VIDEO_PKGS = $(if $(filter no,$(FFMPEG)),,$(shell pkg-config --exists $(AV_PKGS) 2>/dev/null && echo $(AV_PKGS)))
CURL_PKG   = $(if $(filter no,$(CURL)),,$(shell pkg-config --exists libcurl 2>/dev/null && echo libcurl))
SQLITE_PKG = $(if $(filter no,$(SQLITE)),,$(shell pkg-config --exists sqlite3 2>/dev/null && echo sqlite3))
AV_PKGS    = libavformat libavcodec libswscale libavutil
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS))
PKG_LIBS   = $(shell pkg-config --libs $(PKGS))

# Products and sums are rounded one by one unless the source says fma: a seed's text must not depend on
# what a compiler likes to fuse.
ROUNDING = -ffp-contract=off

ALL_CFLAGS  = -std=c17 -D_GNU_SOURCE -pthread $(WARN) -g $(OPT) $(ROUNDING) $(ISA) $(SANITIZE) -fPIC \
              -fvisibility=hidden -DDGEMMA_BUILD $(INCLUDES) $(DEFINES) $(CPPFLAGS) $(CFLAGS)
ALL_LDFLAGS = -pthread $(SANITIZE) $(LDFLAGS)
LDLIBS      = $(PKG_LIBS) -lgif -lm -ldl $(CUDA_LIBS)

# The kernels: by nvcc, the same objects for every configuration, or by the C++ compiler for the emulated device.
ifeq ($(CUDA),1)
CUDA_HOME   := $(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC)))))
# what only newer architectures call is declared for all of them
CUDA_QUIET  := -diag-suppress 177
CUDA_KNOWN  := $(shell $(NVCC) --list-gpu-code 2>/dev/null)
CUDA_CODE   := $(foreach a,$(if $(filter all,$(CUDA_ARCHS)),$(CUDA_EVERY),$(CUDA_ARCHS)),$(if $(filter sm_$(a:a=),$(CUDA_KNOWN)),-gencode arch=compute_$(a)$(comma)code=sm_$(a)))
CUDA_OBJ    := $(patsubst src/cuda/%.cu,build/cuda/%.o,$(wildcard src/cuda/*.cu))
CUDA_LIBS   := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt -lstdc++
CUDA_INC    := -isystem $(CUDA_HOME)/include
endif
ifeq ($(CUDA),emulated)
CUDA_OBJ     = $(filter-out $(BUILD)/host/tests/cuda/check_%,$(CUDA_HOST))
CUDA_INC    := -Itests/cuda/emulated
endif

# Private: they are not for $(BUILD)/flags, which these files depend on.
$(BUILD)/src/cpu/%.o $(BUILD)/src/tensor/%.o $(BUILD)/src/image/%.o $(BUILD)/src/engine/guide_weights.o: private OPT = -O3
# Kernels of one instruction set are not sanitized: they take five times as long then, to compile and to run, and
# check_kernels has every one of them work between guard pages. Their plain references are, except for threads, where
# following every number of a product takes minutes for what the product takes seconds for.
$(BUILD)/src/cpu/arm/%.o $(BUILD)/src/cpu/x86/%.o: private SANITIZE :=
$(BUILD)/src/cpu/ref/%.o: private SANITIZE := $(if $(filter thread,$(SAN)),,$(SANITIZE))
$(BUILD)/src/image/video.o $(BUILD)/src/image/ffmpeg.o: private DEFINES += $(if $(VIDEO_PKGS),-DHAVE_FFMPEG=1)
$(BUILD)/src/image/video.o $(BUILD)/src/image/ffmpeg.o: private PKGS += $(VIDEO_PKGS)
$(BUILD)/cli/default_model.o: private DEFINES += -DDGEMMA_DATADIR='"$(PREFIX)/share/dgemma"'
$(BUILD)/cli/default_model.o: $(BUILD)/prefix
$(BUILD)/cli/%.o: private PKGS += libedit
$(BUILD)/src/cpu/arm/%_i8mm.o: private ISA = -march=armv8.2-a+fp16+dotprod+i8mm
$(BUILD)/src/cpu/arm/%_bf16.o: private ISA = -march=armv8.2-a+bf16
$(BUILD)/src/cpu/x86/%_avx2.o: private ISA = -mavx2 -mfma -mf16c
$(BUILD)/src/cpu/x86/%_vnni.o $(BUILD)/src/cpu/x86/%_amx.o: private ISA = -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512vnni
$(BUILD)/src/cpu/x86/bytes_amx.o $(BUILD)/src/cpu/x86/bfloat_amx.o: private ISA += -mamx-tile -mamx-int8 -mamx-bf16 -mavx512bf16
$(BUILD)/src/cpu/arm/peak_matrix.o: private ISA = -march=armv8.2-a+fp16+dotprod+i8mm+bf16
$(BUILD)/src/cpu/x86/peak_vnni.o: private ISA = -mavx512f -mavx512vnni
$(BUILD)/src/cpu/x86/peak_amx.o: private ISA = -mamx-tile -mamx-int8 -mamx-bf16
# The one file that knows whether there is a CUDA backend: with one and without one share all other objects.
$(BUILD)/src/engine/device.o: private DEFINES += $(if $(filter 0,$(CUDA)),,-DDG_HAVE_CUDA=1)
$(BUILD)/src/engine/device.o: $(BUILD)/sources
$(BUILD)/src/cuda/%.o: private INCLUDES += $(CUDA_INC)
$(BUILD)/tests/%.o: private INCLUDES += -Itests -I.
$(BUILD)/cli/cmd_serve.o $(BUILD)/cli/cmd_batch.o: private INCLUDES += -I.
$(BUILD)/server/%.o: private PKGS += gnutls
$(BUILD)/server/fetch.o: private DEFINES += $(if $(CURL_PKG),-DHAVE_CURL=1)
$(BUILD)/server/fetch.o: private PKGS += $(CURL_PKG)
$(BUILD)/server/database.o: private DEFINES += $(if $(SQLITE_PKG),-DHAVE_SQLITE=1)
$(BUILD)/server/database.o: private PKGS += $(SQLITE_PKG)
$(BUILD)/tests/unit/%.o: private PKGS += check
$(BUILD)/tests/cuda/%.o: private INCLUDES += -Itests/cuda/emulated -DEMULATED=1

# A sanitizer's runtime is in the program, not in the shared library.
NO_UNDEFINED = $(if $(SAN),,-Wl,-z,defs)

# The unit tests make each allocation fail once; see tests/support/alloc_fail.h.
WRAP_ALLOC = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc

# And each test gives back what it took; see tests/unit/leak_check.c.
COUNTED    = dg_malloc dg_calloc dg_array dg_array_resize dg_malloc_aligned dg_strdup dg_strndup dg_free tcase_create
WRAP_ALLOC += $(COUNTED:%=-Wl,--wrap=%)
WRAP_MARKS = -Wl,--wrap=_mark_point

# ---- what is made ----

obj = $(patsubst %.c,$(BUILD)/%.o,$(1))

LIB_A   := $(BUILD)/libdgemma.a
LIB_SO  := $(BUILD)/libdgemma.so.$(SOVER)
SERVER  := $(BUILD)/libserver.a
SUPPORT := $(BUILD)/libtest_support.a
PROGRAM := $(if $(SRC_cli),$(BUILD)/dgemma)
REPLAY  := $(patsubst tests/fuzz/%.c,$(BUILD)/%,$(SRC_fuzz))
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/libfuzzer/%,$(SRC_fuzz))
CHECKS  := $(if $(SRC_unit),$(BUILD)/unit_tests) $(if $(SRC_kernels),$(BUILD)/check_kernels) \
           $(if $(SRC_golden),$(BUILD)/dgemma-golden) $(if $(SRC_pty),$(BUILD)/pty_tests) \
           $(if $(SAN),,$(if $(SRC_cuda_test),$(BUILD)/cuda_host_tests) $(if $(SRC_device_test),$(BUILD)/device_tests))
# Of those in tests/tools one looks at what a sanitizer is in.
SCRIPTS := $(wildcard tests/cli/*.sh tests/server/test_*.sh tests/pocket/*.sh tests/python/*.sh) \
           $(if $(SAN),tests/tools/test_jinja.sh,$(wildcard tests/tools/*.sh))

ALL_OBJ := $(call obj,$(SRC_lib) $(SRC_server) $(SRC_cli) $(SRC_support) $(SRC_unit) $(SRC_kernels) $(SRC_golden) \
           $(SRC_pty) $(SRC_fuzz) $(SRC_replay) $(SRC_bench) $(SRC_cuda_test) $(SRC_device_test) $(SRC_pocket) tests/tools/render_chat.c tests/guided/valid_answers.c)

.PHONY: all run test test-programs gpu-report cpu-report cuda-kernels cuda-host cuda-golden test-long test-valid test-tools test-gaps test-lm-eval test-llama test-ray test-deb test-container test-cross mutations golden pocket-eval bench soak soak-state bench-serve fuzz fuzz-build fuzz-programs fuzz-run deps deps-most deps-all wheel wheel-label dist deb install uninstall format format-check \
        check check-layers check-names check-lengths clean help FORCE
.SECONDARY: $(ALL_OBJ)

all: $(LIB_A) $(LIB_SO) $(PROGRAM) $(if $(filter release,$(CFG)),$(PROGRAM:%=build/dgemma))

# One word a step; V=1 shows the commands.
Q   := $(if $(V),,@)
say  = $(if $(V),,@echo '  $(1)')

define archive
$(call say,AR $@)
$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
endef

define link
$(call say,LINK $@)
$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)
endef

$(BUILD)/%.o: %.c $(BUILD)/flags | build/deps-build.ok
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(ALL_CFLAGS) $(PKG_CFLAGS) -MMD -MP -c -o $@ $<

$(call obj,$(SRC_unit) $(SRC_support) $(SRC_device_test)): | build/deps-test.ok

build/cuda/%.o: src/cuda/%.cu build/cuda/flags
	$(call say,NVCC $<)
	$(Q)$(NVCC) -std=c++17 -O3 $(CUDA_QUIET) $(CUDA_CODE) -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions -Iinclude -Isrc -MMD -MF $(@:.o=.d) -c -o $@ $<

# The same checks as cuda_host_tests, on a device; and the kernels' speed.
$(BUILD)/device/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(ALL_CFLAGS) $(CUDA_INC) -Itests -MMD -MP -c -o $@ $<

$(BUILD)/device/%.o: %.cu build/cuda/flags
	@mkdir -p $(@D)
	$(call say,NVCC $<)
	$(Q)$(NVCC) -std=c++17 -O3 $(CUDA_QUIET) $(CUDA_CODE) -Iinclude -Isrc -Itests -MMD -MF $(@:.o=.d) -c -o $@ $<

SRC_device := $(wildcard tests/cuda/*.c tests/cuda/*.cu)
$(BUILD)/cuda_tests: $(patsubst %,$(BUILD)/device/%.o,$(basename $(SRC_device))) $(CUDA_OBJ) $(call obj,src/cuda/cuda_places.c $(SRC_base) $(SRC_tensor))
	$(link)

$(patsubst bench/%.cu,$(BUILD)/%,$(wildcard bench/bench_cuda_*.cu)): $(BUILD)/bench_cuda_%: $(BUILD)/device/bench/bench_cuda_%.o $(CUDA_OBJ) $(call obj,$(SRC_base) $(SRC_tensor))
	$(link)


cuda-kernels: $(CUDA_OBJ)

-include $(wildcard build/cuda/*.d $(BUILD)/device/*/*.d $(BUILD)/device/*/*/*.d)

# CUDA kernels on the host, compiled as C++ that needs nothing of its library.
CXX        = $(patsubst %clang,%clang++,$(patsubst %cc,%c++,$(patsubst %gcc,%g++,$(CC))))
CUDA_HOST  := $(patsubst %,$(BUILD)/host/%.o,$(basename $(SRC_emulated)))
CXX_FLAGS  = -std=c++17 -x c++ -fno-exceptions -fno-rtti -Wall -Wextra -Wno-unknown-pragmas $(if $(WERROR),-Werror) -g $(CXX_OPT) \
             -ffp-contract=off $(SANITIZE) $(CXX_SHARED) -Itests/cuda/emulated $(INCLUDES) -Itests
CXX_OPT    = $(if $(SAN),-O0,-O2)
# The emulated device's sums are loops that -O3 makes vectors of.
$(BUILD)/host/tests/cuda/emulated/%.o: private CXX_OPT = $(if $(SAN),-O0,-O3)
# With CUDA=emulated they are in the shared library, too.
CXX_SHARED = $(if $(filter emulated,$(CUDA)),-fPIC -fvisibility=hidden)
ifneq ($(shell command -v $(lastword $(CXX))),)
$(BUILD)/host/%.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX $<)
	$(Q)$(CXX) $(CXX_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/host/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX $<)
	$(Q)$(CXX) $(CXX_FLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/cuda_host_tests: $(call obj,$(SRC_cuda_test)) $(CUDA_HOST) $(call obj,src/cuda/cuda_places.c $(SRC_base) $(SRC_tensor))
	$(link)

$(BUILD)/host/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC $<)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests/cuda/emulated -DDG_HAVE_CUDA=1 -MMD -MP -c -o $@ $<

# Their objects come before the library's of the same names.
EMULATED_C := $(patsubst %.c,$(BUILD)/host/%.o,$(SRC_emulated_c))
$(BUILD)/tests/device/%.o: private INCLUDES += -Itests/cuda/emulated
$(BUILD)/tests/device/%.o: private PKGS += check
$(BUILD)/device_tests: private PKGS += check
$(BUILD)/device_tests: $(call obj,$(SRC_device_test)) $(EMULATED_C) $(filter-out $(BUILD)/host/tests/cuda/check_%,$(CUDA_HOST)) $(LIB_A)
	$(link)

-include $(CUDA_HOST:.o=.d) $(EMULATED_C:.o=.d)
else
$(BUILD)/cuda_host_tests $(BUILD)/device_tests:
	@mkdir -p $(@D)
	@printf '#!/bin/sh\necho "CUDA kernels on the host: skipped, there is no %s"\necho "0 passed, 0 failed, 1 skipped"\n' \
	    '$(lastword $(CXX))' > $@ && chmod +x $@
endif

$(LIB_A): $(call obj,$(SRC_lib)) $(CUDA_OBJ) $(BUILD)/sources
	$(archive)

$(LIB_SO): $(call obj,$(SRC_lib)) $(CUDA_OBJ) $(BUILD)/sources
	$(call say,LINK $@)
	$(Q)$(CC) -shared -Wl,-soname,$(@F) $(NO_UNDEFINED) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(LDLIBS)

$(SUPPORT): $(call obj,$(SRC_support)) $(BUILD)/sources
	$(archive)


# The page, one document made of the files in ui/.
$(BUILD)/page_data.c: ui/index.html ui/style.css $(SRC_ui) tools/embed_page.sh $(BUILD)/sources
	$(call say,EMBED $@)
	$(Q)sh tools/embed_page.sh ui/index.html ui/style.css $(SRC_ui) > $@.new && mv $@.new $@

$(BUILD)/page_data.o: $(BUILD)/page_data.c server/page.h $(BUILD)/flags
	$(call say,CC $<)
	$(Q)$(CC) $(ALL_CFLAGS) -Iserver -c -o $@ $<

$(SERVER): $(call obj,$(SRC_server)) $(BUILD)/page_data.o $(BUILD)/sources
	$(archive)

$(BUILD)/dgemma: private PKGS += libedit gnutls $(SQLITE_PKG)
$(BUILD)/dgemma: $(call obj,$(SRC_cli)) $(SERVER) $(LIB_A)
	$(link)

build/dgemma: $(BUILD)/dgemma
	@ln -f $< $@

$(BUILD)/unit_tests: private ALL_LDFLAGS += $(WRAP_ALLOC) $(WRAP_MARKS)
$(BUILD)/unit_tests: private PKGS += check gnutls $(SQLITE_PKG)
$(BUILD)/unit_tests: $(call obj,$(SRC_unit) tests/kernels/plain_bfloat.c tests/kernels/plain_bytes_amx.c tests/kernels/plain_bytes_vnni.c $(SRC_support) $(SRC_view) $(filter-out %_eval.c,$(SRC_pocket))) $(SERVER) $(LIB_A)
	$(link)

$(BUILD)/check_kernels: $(call obj,$(SRC_kernels)) $(SUPPORT) $(LIB_A)
	$(link)

$(BUILD)/dgemma-golden: $(call obj,$(SRC_golden)) $(SUPPORT) $(LIB_A)
	$(link)

# What the small trained model can do; see models/pocket.
# Answers under schemas, for tests/guided/test_valid.py.
VALID := $(BUILD)/valid_answers
$(VALID): $(call obj,tests/guided/valid_answers.c) $(LIB_A)
	$(link)

POCKET_EVAL := $(BUILD)/pocket_eval
$(POCKET_EVAL): $(call obj,$(SRC_pocket)) $(LIB_A)
	$(link)

# The chat on a pseudo-terminal.
$(BUILD)/pty_tests: private LDLIBS += -lutil
$(BUILD)/pty_tests: $(call obj,$(sort $(SRC_pty) $(SRC_view))) $(SUPPORT) $(LIB_A) | $(PROGRAM)
	$(link)

# Conversations rendered line by line, for the comparison with Jinja.
RENDER := $(BUILD)/render_chat
$(RENDER): $(call obj,tests/tools/render_chat.c) $(LIB_A)
	$(link)

# The vision tower at the real shape, beside the peak of the same machine.
$(BUILD)/bench/%.o: INCLUDES += -Itests
$(BUILD)/bench_vision: $(call obj,bench/bench_vision.c tests/kernels/peak.c) $(SUPPORT) $(LIB_A)
	$(link)

# Requests together beside one alone.
$(BUILD)/bench_batch: $(call obj,bench/bench_batch.c) $(LIB_A)
	$(link)

# Products on quantised weights, of each instruction set.
$(BUILD)/bench_products: $(call obj,bench/bench_products.c) $(LIB_A)
	$(link)

# The word over a canvas that is held to a schema.
$(BUILD)/bench_word: $(call obj,bench/bench_word.c) $(LIB_A)
	$(link)

# From nothing to the first canvas.
$(BUILD)/bench_start: $(call obj,bench/bench_start.c) $(LIB_A)
	$(link)

$(REPLAY) $(FUZZERS): private PKGS += gnutls $(SQLITE_PKG)
$(REPLAY): $(BUILD)/%: $(BUILD)/tests/fuzz/%.o $(call obj,$(SRC_replay) $(SRC_view)) $(SUPPORT) $(SERVER) $(LIB_A)
	$(link)

# Objects are made again when the flags changed, libraries when a file came or went.
$(BUILD)/flags: STAMP = $(CC) $(TARGET) $(ALL_CFLAGS) $(VIDEO_PKGS) $(CURL_PKG) $(SQLITE_PKG)
$(BUILD)/sources: STAMP = $(SRC_lib) $(CUDA_OBJ) $(SRC_server) $(SRC_ui) $(SRC_support)
$(BUILD)/prefix: STAMP = $(PREFIX)
build/cuda/flags: STAMP = $(CUDA_HOME) $(CUDA_CODE)
$(BUILD)/flags $(BUILD)/sources $(BUILD)/prefix build/cuda/flags: FORCE
	@mkdir -p $(@D); echo '$(STAMP)' | cmp -s - $@ || echo '$(STAMP)' > $@

-include $(ALL_OBJ:.o=.d)

# ---- set-up ----

# Looked at once for each group; `make deps` looks again.
$(patsubst %,build/deps-%.ok,build test fuzz format bench cross): build/deps-%.ok: tools/deps.sh
	@mkdir -p $(@D)
	@CC='$(CC)' sh tools/deps.sh $* && touch $@

# apt-get works for one at a time.
$(patsubst %,build/deps-%.ok,test fuzz bench cross): | build/deps-build.ok

# Without a browser the page's tests are skipped, by name: the run goes on.
build/deps-browser.ok: tools/deps.sh | build/deps-build.ok build/deps-test.ok
	@CC='$(CC)' sh tools/deps.sh browser || echo 'without a browser the tests of the page will be skipped'
	@touch $@

deps:
	@CC='$(CC)' sh tools/deps.sh build test

deps-most:
	@CC='$(CC)' sh tools/deps.sh build test fuzz format cxx video links deb

deps-all: deps-most
	@$(MAKE) --no-print-directory build/deps-browser.ok

# ---- running and testing ----

run: all
	@sh tools/first_run.sh $(if $(filter release,$(CFG)),build/dgemma,$(PROGRAM)) $(if $(RUN_MODEL),-m '$(RUN_MODEL)') $(RUN_ARGS)

test-programs: all $(CHECKS) $(REPLAY) $(RENDER) $(POCKET_EVAL) $(BUILD)/bench_start

test: test-programs $(if $(filter 0 no,$(BROWSER)),,build/deps-browser.ok)
	@BROWSER='$(BROWSER)' BUILD='$(BUILD)' DGEMMA='$(PROGRAM)' CC='$(CC)' SAN='$(SAN)' \
	    sh tests/run_tests.sh $(SCRIPTS) $(CHECKS) $(REPLAY)

# Many clients for a minute, with all that clients do; SOAK_ARGS: --clients, --seconds or --minutes, --model.
soak: all
	@DGEMMA='$(PROGRAM)' SAN='$(SAN)' PYTHONDONTWRITEBYTECODE=1 python3 tests/server/soak.py $(SOAK_ARGS)

# What --state keeps, under kills for two minutes. STATE_ARGS: --seconds, --seed.
soak-state: all
	@DGEMMA='$(PROGRAM)' SAN='$(SAN)' PYTHONDONTWRITEBYTECODE=1 python3 tests/server/state_soak.py $(STATE_ARGS)

# Small errors, one by one: a unit test has to notice each (tests/mutations.txt). MUTATE_ARGS: --only PATTERN, --jobs N, --list.
mutations: build/deps-build.ok build/deps-test.ok
	@python3 tools/mutate.py $(MUTATE_ARGS)

# Built for the other architecture, x86-64 or aarch64, and run on an emulated processor. CROSS_ARGS: suites, or SUITE:CASE.
test-cross: build/deps-build.ok build/deps-cross.ok
	@sh tools/cross_test.sh $(CROSS_ARGS)

# A thousand answers under fifty schemas, by a model that knows nothing and by the pocket model.
test-valid: $(VALID)
	PYTHONDONTWRITEBYTECODE=1 python3 tests/guided/test_valid.py $(VALID)

# Calls that are asked for, whatever the model would rather say. TOOL_RUNS: how many.
test-tools: all
	DGEMMA='$(PROGRAM)' SAN='$(SAN)' PYTHONDONTWRITEBYTECODE=1 python3 tests/server/tool_runs.py $(or $(TOOL_RUNS),500)

# What was cut out of the pocket model's answers is found again.
test-gaps: all
	DGEMMA='$(PROGRAM)' SAN='$(SAN)' PYTHONDONTWRITEBYTECODE=1 python3 tests/server/canvas_eval.py

# Multiple-choice tasks of lm-eval, which is installed for it.
test-lm-eval: all
	@HARNESS=1 BUILD='$(BUILD)' DGEMMA='$(PROGRAM)' CC='$(CC)' SAN='$(SAN)' sh tests/server/test_lm_eval.sh

# What takes too long for every change: mutations, a minute of fuzzing a target, ten minutes of many clients, the
# numbers of the other architecture.
test-long: all
	@status=0; for goal in mutations fuzz soak soak-state test-valid test-tools test-gaps test-lm-eval test-ray cuda-host cuda-golden test-cross; do \
	    echo "== make $$goal"; $(MAKE) --no-print-directory $$goal FUZZ_SECONDS=60 SOAK_ARGS='--minutes 10' || status=1; \
	done; exit $$status

# What quantize writes, judged by llama.cpp: LLAMA is the folder of programs of a build with llama-diffusion-gemma-eval.
test-llama: all
	@test -n '$(LLAMA)' || { echo 'skipped: say where llama.cpp is built: make test-llama LLAMA=folder/bin'; exit 0; }; \
	test -z '$(LLAMA)' || python3 tests/tools/llama_judge.py '$(PROGRAM)' '$(LLAMA)' $(LLAMA_TYPES) || test $$? = 77

# Rows over Ray, which is installed for it: several workers, one of them killed, as one process. RAY_ARGS: rows, model.
test-ray: $(LIB_SO)
	@BUILD='$(BUILD)' SAN='$(SAN)' sh tests/python/ray/test_ray.sh $(RAY_ARGS)

# The Debian packages, installed and run in a fresh system under build/, which root alone can do.
test-deb: deb
	@sh tools/deps.sh chroot || true
	@sh tests/packages/test_installed.sh

# The steps of packaging/Containerfile, in a chroot each, and what comes of them; root alone can.
test-container:
	@sh tools/deps.sh chroot || true
	@sh tests/packages/test_container.sh

bench-serve: all build/deps-bench.ok
	@DGEMMA='$(PROGRAM)' sh bench/serve.sh $(SERVE_ARGS)

# The CUDA kernels on the host under the sanitizers, and traces through the whole backend on the emulated device.
cuda-host:
	$(MAKE) --no-print-directory SAN=address,undefined CUDA=0 build/address-undefined/cuda_host_tests
	build/address-undefined/cuda_host_tests

cuda-golden:
	$(MAKE) --no-print-directory CUDA=emulated build/emulated/dgemma-golden
	build/emulated/dgemma-golden --device cuda $(addprefix tests/fixtures/golden/,text vision sampler_finishes pocket_thinking peft)

# Everything about the CUDA backend on a machine with a GPU; also how other cards are reported.
gpu-report: $(BUILD)/cuda_tests $(BUILD)/dgemma-golden $(PROGRAM) $(POCKET_EVAL) $(BUILD)/bench_cuda_products
	@BUILD='$(BUILD)' sh tools/gpu_report.sh build/gpu-report

# Everything about the CPU backend on this machine: correct with each instruction set, and how fast.
cpu-report: $(BUILD)/check_kernels $(BUILD)/dgemma-golden $(PROGRAM) $(POCKET_EVAL) $(BUILD)/bench_products $(BUILD)/bench_start
	@BUILD='$(BUILD)' sh tools/cpu_report.sh build/cpu-report

golden: $(BUILD)/dgemma-golden
	$(BUILD)/dgemma-golden $(or $(DIR),$(error say which: make golden DIR=folder))

# POCKET_ARGS='--family json --failures wrong.jsonl': one family, and what it got wrong.
pocket-eval: $(POCKET_EVAL)
	$(POCKET_EVAL) -m models/pocket/pocket.gguf $(POCKET_ARGS) $(or $(wildcard models/pocket/eval/*.jsonl models/pocket/eval/*.txt),\
	    $(error models/pocket/eval has no prompts))

bench: all $(BUILD)/check_kernels $(BUILD)/bench_vision $(BUILD)/bench_batch $(BUILD)/bench_start $(BUILD)/bench_products $(BUILD)/bench_word
	$(BUILD)/check_kernels --bench
	$(BUILD)/bench_vision
	$(BUILD)/bench_products
	$(BUILD)/bench_word
	$(BUILD)/bench_batch
	$(BUILD)/bench_start -m models/pocket/pocket.gguf $(if $(PROGRAM),--program $(PROGRAM))

# The library is built once more, with coverage for libFuzzer, in its own folder.
fuzz: fuzz-build
	$(MAKE) --no-print-directory CC='$(FUZZ_CC)' CFG=fuzz SAN=fuzzer-no-link,address,undefined fuzz-run

fuzz-build: build/deps-fuzz.ok
	$(MAKE) --no-print-directory CC='$(FUZZ_CC)' CFG=fuzz SAN=fuzzer-no-link,address,undefined fuzz-programs

fuzz-programs: $(FUZZERS)

$(BUILD)/libfuzzer/%: private ALL_LDFLAGS += -fsanitize=fuzzer
$(BUILD)/libfuzzer/%: $(BUILD)/tests/fuzz/%.o $(call obj,$(SRC_view)) $(SUPPORT) $(SERVER) $(LIB_A)
	@mkdir -p $(@D)
	$(link)

fuzz-run: $(FUZZERS)
	@sh tools/fuzz.sh $(FUZZ_SECONDS) build/fuzz $(FUZZERS)

# ---- keeping house ----

TIDY := $(wildcard bench/*.c examples/*.c include/*.h src/*.[ch] src/*/*.[ch] src/*/*/*.[ch] server/*.[ch] cli/*.[ch] tests/*/*.[ch] src/cuda/*.cu src/cuda/*.cuh tests/cuda/*.cu \
        tests/cuda/emulated/*.h tests/cuda/emulated/*.cpp)

format: build/deps-format.ok
	clang-format -i $(TIDY)

format-check: build/deps-format.ok
	@clang-format --dry-run --Werror $(TIDY)

check-layers:
	@sh tools/check_layers.sh

check-names:
	@sh tools/check_names.sh

check-lengths:
	@sh tools/check_lengths.sh

check: check-layers check-names check-lengths format-check

clean:
	rm -rf build

# ---- installing ----

BINDIR     = $(DESTDIR)$(PREFIX)/bin
LIBDIR     = $(PREFIX)/lib
LIBS       = $(DESTDIR)$(LIBDIR)
INCDIR     = $(DESTDIR)$(PREFIX)/include
PKGDIR     = $(LIBS)/pkgconfig
SHAREDIR   = $(DESTDIR)$(PREFIX)/share
DATADIR    = $(SHAREDIR)/dgemma
MANDIR     = $(SHAREDIR)/man/man1
BASHDIR    = $(SHAREDIR)/bash-completion/completions
ZSHDIR     = $(SHAREDIR)/zsh/site-functions
FISHDIR    = $(SHAREDIR)/fish/vendor_completions.d
SO_FULL    = libdgemma.so.$(VERSION)

# The model that comes with dgemma, its vision tower, and what it should compute.
POCKET     = $(wildcard models/pocket/*.gguf models/pocket/*.reference.json)

install: all
	install -d $(BINDIR) $(LIBS) $(INCDIR) $(PKGDIR) $(MANDIR) $(BASHDIR) $(ZSHDIR) $(FISHDIR) $(DATADIR)
	$(if $(POCKET),install -m 644 $(POCKET) $(DATADIR))
	$(if $(PROGRAM),install -m 755 $(PROGRAM) $(BINDIR)/dgemma)
	install -m 644 $(LIB_A) $(LIBS)/libdgemma.a
	install -m 755 $(LIB_SO) $(LIBS)/$(SO_FULL)
	ln -sf $(SO_FULL) $(LIBS)/libdgemma.so.$(SOVER)
	ln -sf libdgemma.so.$(SOVER) $(LIBS)/libdgemma.so
	install -m 644 include/*.h $(INCDIR)
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' -e 's|@VERSION@|$(VERSION)|' -e 's|@PKGS@|$(strip $(PKGS))|' -e 's|@CUDA@|$(CUDA_LIBS)|' \
	    dgemma.pc.in > $(PKGDIR)/dgemma.pc
	install -m 644 docs/man/dgemma.1 $(MANDIR)/dgemma.1
	install -m 644 completions/dgemma.bash $(BASHDIR)/dgemma
	install -m 644 completions/dgemma.zsh $(ZSHDIR)/_dgemma
	install -m 644 completions/dgemma.fish $(FISHDIR)/dgemma.fish

uninstall:
	rm -f $(BINDIR)/dgemma $(LIBS)/libdgemma.a $(LIBS)/libdgemma.so $(LIBS)/$(SO_FULL) \
	    $(LIBS)/libdgemma.so.$(SOVER) $(patsubst include/%,$(INCDIR)/%,$(wildcard include/*.h)) \
	    $(PKGDIR)/dgemma.pc $(MANDIR)/dgemma.1 $(BASHDIR)/dgemma $(ZSHDIR)/_dgemma $(FISHDIR)/dgemma.fish \
	    $(patsubst models/pocket/%,$(DATADIR)/%,$(POCKET))
	-rmdir $(DATADIR)

# The Python package with library and pocket model inside; `pip install .` makes the same. PYTHON: another one.
PYTHON ?= python3

wheel: $(LIB_SO)
	$(PYTHON) -m pip wheel --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	@ls -t build/wheel/dgemma-$(VERSION)*-*.whl | head -n 1

# What a wheel's version says beside its number: the CUDA that it was made with, if it was.
wheel-label:
	@echo '$(if $(filter 1,$(CUDA)),cuda$(shell $(NVCC) --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p'))'

# What is committed, as a tarball: the same bytes each time.
DIST := build/dgemma-$(VERSION).tar.gz

dist:
	@mkdir -p build
	git -c tar.umask=0002 -c core.autocrlf=false archive --format=tar --prefix=dgemma-$(VERSION)/ HEAD | gzip -9n > $(DIST)
	@sha256sum $(DIST)

# Debian packages, made with the system's tools: build/packages. DEBFULLNAME and DEBEMAIL say who makes them.
deb:
	@CC='$(CC)' sh tools/deps.sh build video links deb
	+@sh tools/make_deb.sh build/packages

help:
	@echo 'make                  build/dgemma, build/release/libdgemma.a and libdgemma.so.$(SOVER)'
	@echo 'make run              chat; without a terminal, three sample prompts (RUN_MODEL, RUN_ARGS: options)'
	@echo 'make test             every test; the last line is the sum. The page is tested in Chromium, which is installed for it; BROWSER=0: not'
	@echo 'make test-long        what takes longer: mutations, a minute of fuzzing a target, a soak of ten minutes, answers under schemas, calls, gaps, lm-eval, Ray, CUDA on the host, test-cross'
	@echo 'make test-valid       answers under schemas are what the schemas say'
	@echo 'make test-tools       calls that are asked for are made (TOOL_RUNS: how many)'
	@echo 'make test-gaps        what was cut out of answers of the pocket model is found again'
	@echo 'make test-lm-eval     tasks of lm-eval with several choices; installs it'
	@echo 'make test-llama       what quantize writes, loaded and run by a llama.cpp of yours (LLAMA: the folder of its programs)'
	@echo 'make test-ray         rows over workers of Ray, of which some are killed; installs it'
	@echo 'make test-deb         the Debian packages, installed and run in a fresh system; needs root'
	@echo 'make test-container   the steps of packaging/Containerfile, and the image, without a container engine; needs root'
	@echo 'make test-cross       the numbers on an emulated processor of the other architecture: kernels, golden traces, functions, answers of seeds (CROSS_ARGS: suites)'
	@echo 'make mutations        small errors that a unit test has to notice (MUTATE_ARGS: --only PATTERN, --list)'
	@echo 'make golden DIR=d     compare with the recorded trace in d'
	@echo 'make pocket-eval      ask the small model all prompts of its evaluation (POCKET_ARGS: options)'
	@echo 'make gpu-report       build, test and time the CUDA backend on this machine; logs in build/gpu-report'
	@echo 'make cpu-report       the same for the CPU backend with each of its instruction sets; logs in build/cpu-report'
	@echo 'make bench            check and time the CPU kernels, time the vision tower, requests together, the start'
	@echo 'make soak             64 clients of all kinds for a minute: equal answers, flat memory'
	@echo 'make soak-state       files, batches and responses of serve --state under kill -9 for two minutes (STATE_ARGS: --seconds, --seed)'
	@echo 'make bench-serve      throughput of the server by concurrency'
	@echo 'make fuzz             each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS) (clang)'
	@echo 'make deps, deps-all   install what building and testing need; also clang for the checks'
	@echo 'make wheel            the Python package, with the library and the pocket model in it: build/wheel; with CUDA=1, dgemma-$(VERSION)+cuda…'
	@echo 'make dist             build/dgemma-$(VERSION).tar.gz, of what is committed: the same bytes each time'
	@echo 'make deb              Debian packages, in build/packages: program, service, pocket model, library, headers'
	@echo 'make install          into PREFIX=$(PREFIX) under DESTDIR (LIBDIR: its libraries); uninstall takes it away'
	@echo 'make check            layers, names and lengths of files, layout; also check-layers, check-names, check-lengths, format-check'
	@echo 'make format           lay the code out by .clang-format'
	@echo 'make clean            remove build/'
	@echo
	@echo 'CC=clang              another compiler, in build/clang'
	@echo 'SAN=address,undefined sanitizers, in build/address-undefined; SAN=thread'
	@echo 'WERROR=1              warnings are errors'
	@echo 'CUDA=0                without the CUDA backend, even where nvcc is found'
	@echo 'CUDA_ARCHS="80 90a"   for these, not for the GPUs of this machine; all: for every one we know (packages)'
	@echo 'CUDA=emulated         with its kernels on the host, in build/emulated: slow, for tests'
	@echo 'FFMPEG=no             without video, even where FFmpeg is found'
	@echo 'CURL=no               a server that fetches no pictures, even where libcurl is found'
	@echo 'SQLITE=no             a server that keeps nothing (serve --state), even where SQLite is found'
	@echo 'V=1                   show each command'
	@echo 'CFG=name              objects in build/name'
	@echo 'CFLAGS, LDFLAGS       added to ours'
