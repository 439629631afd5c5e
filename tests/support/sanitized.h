/* Which sanitizer is in this build; compilers say so in two ways. */
#ifndef DG_TESTS_SANITIZED_H
#define DG_TESTS_SANITIZED_H

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define DG_TEST_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define DG_TEST_THREAD_SANITIZER 1
#endif
#endif

#ifdef __SANITIZE_ADDRESS__
#define DG_TEST_ADDRESS_SANITIZER 1
#endif
#ifdef __SANITIZE_THREAD__
#define DG_TEST_THREAD_SANITIZER 1
#endif

#ifndef DG_TEST_ADDRESS_SANITIZER
#define DG_TEST_ADDRESS_SANITIZER 0
#endif
#ifndef DG_TEST_THREAD_SANITIZER
#define DG_TEST_THREAD_SANITIZER 0
#endif

#endif
