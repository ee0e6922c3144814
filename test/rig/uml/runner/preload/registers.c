/*
 * The machine's kernel saves and restores the floating-point registers of its processes by ptrace, with a buffer for the
 * registers that were known when it was written. A kernel of a processor with more of them (AMX has 8 KiB) takes all or
 * nothing. This library, between the two, fills up what the machine's kernel leaves out: registers in their initial state.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

/* Where the registers say which of them are in use, one bit for each kind; bits 17 and 18 are those of AMX. */
enum { IN_USE_AT = 512, IN_USE_END = IN_USE_AT + sizeof(uint64_t) };
static const uint64_t amx = UINT64_C(3) << 17;

/* The kernel of the machine has one processor and changes registers with nothing else under way: one buffer will do. It
   is not on the stack, as those of that kernel are small. */
static unsigned char all[1 << 16];

typedef long call(enum __ptrace_request, ...);

/* size is that of all registers of this processor, or 0 where the process cannot be asked. */
static size_t size(call *real, void *pid, void *kind)
{
	static size_t known;
	struct iovec whole = {all, sizeof all};

	if (!known && real(PTRACE_GETREGSET, pid, kind, &whole) == 0)
		known = whole.iov_len;
	return known;
}

long ptrace(enum __ptrace_request request, ...)
{
	static call *real;
	void *pid, *address, *data;
	va_list arguments;

	va_start(arguments, request);
	pid = va_arg(arguments, void *);
	address = va_arg(arguments, void *);
	data = va_arg(arguments, void *);
	va_end(arguments);
	if (!real)
		real = (call *)dlsym(RTLD_NEXT, "ptrace");

	if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
		struct iovec *given = data, whole = {all, size(real, pid, address)};

		if (given->iov_len >= IN_USE_END && given->iov_len < whole.iov_len) {
			uint64_t in_use;

			memset(all, 0, whole.iov_len);
			memcpy(all, given->iov_base, given->iov_len);
			memcpy(&in_use, all + IN_USE_AT, sizeof in_use);
			in_use &= ~amx;
			memcpy(all + IN_USE_AT, &in_use, sizeof in_use);
			return real(request, pid, address, &whole);
		}
	}
	return real(request, pid, address, data);
}
