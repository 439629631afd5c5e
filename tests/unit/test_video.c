/* Frames of a video: which ones, when, which way up; and hostile files. The clips were made by us
 * with FFmpeg: 32 x 16 pixels at 10 frames a second, frame i of one colour, (5i, 255 - 5i, 3i),
 * with a white quarter at the top left. */
#include "suites.h"
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "image/video.h"
#include "support/skip.h"

#define DATA "tests/data/video/"

typedef struct seen {
    int n;
    int index[64]; /* by colour */
    double seconds[64];
    dg_image last; /* of the caller's */
    int stop_after;
} seen;

static dgemma_status look(void *arg, const dg_image *frame, double seconds, dgemma_error *err)
{
    seen *s = arg;
    const size_t n = (size_t)frame->width * (size_t)frame->height * 3;
    s->index[s->n] = frame->rgb[n - 3] / 5;
    s->seconds[s->n++] = seconds;
    free(s->last.rgb);
    s->last = *frame;
    s->last.rgb = malloc(n);
    memcpy(s->last.rgb, frame->rgb, n);
    return s->n == s->stop_after ? dg_fail(err, DGEMMA_E_CANCELLED, "enough") : DGEMMA_OK;
}

static dgemma_status watch(seen *s, const char *name, int n_sample, const dg_video_limits *limits)
{
    dg_file_map map;
    ck_assert_int_eq(dg_file_map_open(&map, name, NULL), DGEMMA_OK);
    dgemma_error err = {0};
    dgemma_status st = dg_video_frames(map.data, map.size, n_sample, limits, look, s, &err);
    ck_assert(st == err.status);
    dg_file_map_close(&map);
    free(s->last.rgb);
    s->last.rgb = NULL;
    return st;
}

/* Says so where the build has no FFmpeg. */
static bool no_video(void)
{
    dgemma_error err = {0};
    seen s = {0};
    dg_video_frames("x", 1, 1, NULL, look, &s, &err);
    if (!strstr(err.msg, "this build reads no video"))
        return false;
    dg_test_skip("built without FFmpeg");
    return true;
}

START_TEST(frames_are_spread_over_the_clip)
{
    if (no_video())
        return;
    seen s = {0};
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", DG_VIDEO_FRAMES, NULL), DGEMMA_OK);
    ck_assert_int_eq(s.n, 32);
    for (int i = 0; i < 32; i++) {
        ck_assert_int_eq(s.index[i], i * 40 / 32);
        ck_assert_double_eq_tol(s.seconds[i], (i * 40 / 32) / 10.0, 1e-3);
    }
    ck_assert_int_eq(s.last.width, 32);
    ck_assert_int_eq(s.last.height, 16);
}
END_TEST

START_TEST(a_short_clip_is_shown_whole)
{
    if (no_video())
        return;
    seen s = {0};
    ck_assert_int_eq(watch(&s, DATA "five.mkv", DG_VIDEO_FRAMES, NULL), DGEMMA_OK);
    ck_assert_int_eq(s.n, 5);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(s.index[i], i);
}
END_TEST

START_TEST(a_phones_video_is_turned_upright)
{
    if (no_video())
        return;
    seen s = {0};
    ck_assert_int_eq(watch(&s, DATA "turned.mp4", DG_VIDEO_FRAMES, NULL), DGEMMA_OK);
    ck_assert_int_eq(s.n, 3);
    ck_assert_int_eq(s.last.width, 16);
    ck_assert_int_eq(s.last.height, 32);
}
END_TEST

START_TEST(limits_and_refusals)
{
    if (no_video())
        return;
    seen s = {0};
    dg_video_limits limits = dg_video_limits_default();
    limits.max_frames = 39;
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", 32, &limits), DGEMMA_E_LIMIT);
    limits = dg_video_limits_default();
    limits.frame.max_side = 31;
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", 32, &limits), DGEMMA_E_LIMIT);
    limits = dg_video_limits_default();
    limits.max_bytes = 10;
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", 32, &limits), DGEMMA_E_LIMIT);
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", 0, NULL), DGEMMA_E_ARG);
    ck_assert_int_eq(watch(&s, DATA "../images/README.md", 32, NULL), DGEMMA_E_UNSUPPORTED);
    ck_assert_int_eq(dg_video_frames(NULL, 0, 32, NULL, look, &s, NULL), DGEMMA_E_FORMAT);
    ck_assert_int_eq(s.n, 0);
    s.stop_after = 3;
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", 32, NULL), DGEMMA_E_CANCELLED);
    ck_assert_int_eq(s.n, 3);
}
END_TEST

/* Frames times their size, from what the file says of itself: nothing is decoded. */
START_TEST(the_work_is_bounded)
{
    if (no_video())
        return;
    enum { ALL = 40 * 32 * 16 };
    seen s = {0};
    dg_video_limits limits = dg_video_limits_default();
    ck_assert_int_ge(limits.max_pixels, (int64_t)60 * 30 * 1920 * 1080);
    ck_assert_int_lt(limits.max_pixels, (int64_t)20 * 24 * 4096 * 2304);
    limits.max_pixels = ALL - 1;
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", 32, &limits), DGEMMA_E_LIMIT);
    ck_assert_int_eq(s.n, 0);
    limits.max_pixels = ALL;
    ck_assert_int_eq(watch(&s, DATA "forty.mkv", 32, &limits), DGEMMA_OK);
    ck_assert_int_eq(s.n, 32);
}
END_TEST

/* The first frame is small, and the file says that all are: it is noticed on the way. */
START_TEST(the_work_is_bounded_where_the_file_lies)
{
    if (no_video())
        return;
    enum { SMALL = 16 * 16, LARGE = 64 * 64 };
    seen s = {0};
    dg_video_limits limits = dg_video_limits_default();
    ck_assert_int_eq(watch(&s, DATA "grows.mjpeg", 32, &limits), DGEMMA_OK);
    ck_assert_int_eq(s.n, 4);
    s = (seen){0};
    limits.max_pixels = SMALL + 2 * LARGE;
    ck_assert_int_eq(watch(&s, DATA "grows.mjpeg", 32, &limits), DGEMMA_E_LIMIT);
    ck_assert(s.n > 0 && s.n < 4);
}
END_TEST

/* A list of other files is no video here. */
START_TEST(no_other_file_is_opened)
{
    if (no_video())
        return;
    static const char list[] = "ffconcat version 1.0\nfile " DATA "five.mkv\n";
    static const char playlist[] = "#EXTM3U\n#EXTINF:1,\n" DATA "five.mkv\n#EXT-X-ENDLIST\n";
    seen s = {0};
    ck_assert_int_eq(dg_video_frames(list, sizeof list - 1, 32, NULL, look, &s, NULL),
                     DGEMMA_E_UNSUPPORTED);
    ck_assert_int_eq(dg_video_frames(playlist, sizeof playlist - 1, 32, NULL, look, &s, NULL),
                     DGEMMA_E_UNSUPPORTED);
}
END_TEST

START_TEST(a_clip_cut_anywhere)
{
    if (no_video())
        return;
    dg_file_map map;
    ck_assert_int_eq(dg_file_map_open(&map, DATA "turned.mp4", NULL), DGEMMA_OK);
    for (size_t n = 0; n < map.size; n += 13) {
        uint8_t *cut = malloc(n + 1);
        memcpy(cut, map.data, n);
        seen s = {0};
        dgemma_error err = {0};
        dgemma_status st = dg_video_frames(cut, n, 32, NULL, look, &s, &err);
        ck_assert(st == err.status && (st || s.n > 0));
        free(s.last.rgb);
        free(cut);
    }
    dg_file_map_close(&map);
}
END_TEST

START_TEST(times_are_minutes_and_seconds)
{
    char text[DG_VIDEO_TIME];
    ck_assert_str_eq(dg_video_time(text, 0), "00:00");
    ck_assert_str_eq(dg_video_time(text, 59.999), "00:59");
    ck_assert_str_eq(dg_video_time(text, 61.5), "01:01");
    ck_assert_str_eq(dg_video_time(text, 6000), "100:00");
    ck_assert_str_eq(dg_video_time(text, -1), "00:00");
}
END_TEST

Suite *video_suite(void)
{
    Suite *s = suite_create("video");
    TCase *t = tcase_create("video");
    tcase_add_test(t, frames_are_spread_over_the_clip);
    tcase_add_test(t, a_short_clip_is_shown_whole);
    tcase_add_test(t, a_phones_video_is_turned_upright);
    tcase_add_test(t, limits_and_refusals);
    tcase_add_test(t, the_work_is_bounded);
    tcase_add_test(t, the_work_is_bounded_where_the_file_lies);
    tcase_add_test(t, no_other_file_is_opened);
    tcase_add_test(t, a_clip_cut_anywhere);
    tcase_add_test(t, times_are_minutes_and_seconds);
    suite_add_tcase(s, t);
    return s;
}
