# dgemma: one GNU Makefile; the source lists below read as the architecture.
#
#   make            build/dgemma and the libraries
#   make run        set up, build, answer a sample prompt
#   make test       set up, build, run every test
#   make help       the other targets

CFG   ?= release
BUILD := build/$(CFG)
CC    ?= cc
PKGS   = jansson

WARN   = -Wall -Wextra -Wshadow -Wconversion -Wvla -Wmissing-prototypes -Wstrict-prototypes
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=c17 -D_GNU_SOURCE $(WARN) $(CFLAGS) -fPIC -fvisibility=hidden -DDGEMMA_BUILD \
             -Iinclude -Isrc -MMD -MP $(shell pkg-config --cflags $(PKGS))
LDLIBS = $(shell pkg-config --libs $(PKGS)) -lm -lpthread

SRC = $(wildcard src/*/*.c src/cpu/ref/*.c)
OBJ = $(SRC:%.c=$(BUILD)/%.o)

all: $(BUILD)/libdgemma.a

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ISA) -c -o $@ $<

$(BUILD)/libdgemma.a: $(OBJ)
	rm -f $@ && $(AR) rcs $@ $^

-include $(OBJ:.o=.d)
