package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strconv"
)

// credentials are kept as hashes, which are of one length whatever is compared.
type credentials struct{ user, password [sha256.Size]byte }

func newCredentials(user, password string) *credentials {
	return &credentials{sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))}
}

// are returns whether both are right. It takes as long for wrong ones as for right ones.
func (c *credentials) are(user, password string) bool {
	given := newCredentials(user, password)
	return subtle.ConstantTimeCompare(c.user[:], given.user[:])&subtle.ConstantTimeCompare(c.password[:], given.password[:]) == 1
}

// guarded admits clients that know the user and the password, and answers why where none can.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		access := s.identity.access.Load()
		if access.credentials == nil {
			fail(w, http.StatusForbidden, access.why+" Without that, /livez and /readyz alone are served.")
			return
		}
		right, refused := s.guesses.check(r, access.credentials)
		if refused {
			w.Header().Set("Retry-After", strconv.Itoa(int(guessDelay.Seconds())))
			fail(w, http.StatusTooManyRequests, "too many wrong passwords came at once, so none is looked at for a second: try again, with the right one")
			return
		}
		if !right {
			s.Log.Debug("refused a request to the API", "remote", r.RemoteAddr, "path", r.URL.Path)
			w.Header().Set("WWW-Authenticate", `Basic realm="holdfast", charset="UTF-8"`)
			fail(w, http.StatusUnauthorized, "give the user and the password that are in the secret of the StorageCluster's spec.secretRef, as basic authentication")
			return
		}
		next.ServeHTTP(w, r)
	})
}
