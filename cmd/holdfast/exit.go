package main

import (
	"errors"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const exitCodes = `Exit codes:
  0  done; with status and doctor: healthy
  1  failed or refused; with status and doctor: not healthy
  2  wrong usage
  3  could not ask: no configuration or no such context, no answer from the API server, or not allowed by it
  65 with copy: another run will not help
  66 with copy: the target has content that no copy has left behind, and was not written to
`

// errUsage is an error in how the program was called.
var errUsage = errors.New("run with --help for what is allowed")

// notAskedError is an error for which the state of the cluster is not known.
type notAskedError struct{ error }

func notAsked(err error) error {
	if err == nil {
		return nil
	}
	return notAskedError{err}
}

func (e notAskedError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var unknown notAskedError
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	case exitCodeOfCopy(err) != 0:
		return exitCodeOfCopy(err)
	case errors.As(err, &unknown), unanswered(err):
		return 3
	}
	return 1
}

// unanswered says that the API server did not answer, or refused to.
func unanswered(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport) || slices.ContainsFunc([]func(error) bool{
		apierrors.IsUnauthorized, apierrors.IsForbidden, apierrors.IsServiceUnavailable, apierrors.IsInternalError,
		apierrors.IsTimeout, apierrors.IsServerTimeout, apierrors.IsTooManyRequests,
	}, func(is func(error) bool) bool { return is(err) })
}
