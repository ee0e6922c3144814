/*
 * The machine's kernel has one timer of this machine, which it sets anew at each tick of its clock. Where this machine is
 * busy, a tick can get lost, and no other follows: a program that computes is never interrupted any more, and all others,
 * such as the kubelet, stand still. One tick each second, which the kernel has not asked for, sets its timer again.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

__attribute__((constructor)) static void tick(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	struct itimerspec each_second = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_sec = 1}};
	timer_t timer;

	signal(SIGALRM, SIG_IGN); /* until the kernel handles it */
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &each_second, NULL))
		abort();
}
