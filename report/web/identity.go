package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync/atomic"
	"time"

	core "k8s.io/api/core/v1"

	listers "github.com/holdfast-storage/holdfast/api/client/listers/api/v1beta1"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
)

// The keys of the secret that spec.secretRef names.
const (
	userKey     = "username"
	passwordKey = "password"
)

// checkEvery is how often the certificate's age is looked at.
const checkEvery = time.Hour

// identity holds the certificate of the server and the user that is admitted. It follows the StorageCluster and two
// secrets; a change needs no restart, and while a secret cannot be read, what it held last counts.
type identity struct {
	Config
	clusters listers.StorageClusterLister
	changed  chan struct{}
	given    *kube.SecretWatch // spec.secretRef
	own      *kube.SecretWatch // the self-signed certificate
	refused  refusals

	pair   atomic.Pointer[tls.Certificate]
	access atomic.Pointer[access]
}

// access is the user that is admitted. Without one it says why none is.
type access struct {
	*credentials
	why string
}

// refusals are why secrets may not be read, as they were logged last.
type refusals struct{ given, own string }

// isNew returns whether a refusal, which comes with each attempt to read, is another one than the last. None ends it.
func isNew(refusal error, last *string) bool {
	before := *last
	*last = ""
	if refusal != nil {
		*last = refusal.Error()
	}
	return *last != "" && *last != before
}

// newIdentity starts with a certificate that only this process has, so that clients get an answer at once.
func newIdentity(c Config, clusters listers.StorageClusterLister) (*identity, error) {
	i := &identity{Config: c, clusters: clusters, changed: make(chan struct{}, 1)}
	i.given, i.own = kube.NewSecretWatch(c.Kubernetes, i.wake), kube.NewSecretWatch(c.Kubernetes, i.wake)
	data, err := makePair(namesFor(nil, c.Namespace), time.Now())
	if err != nil {
		return nil, err
	}
	if err := i.use(data); err != nil {
		return nil, err
	}
	i.access.Store(&access{why: "It is not known yet who may: the cluster could not be read so far."})
	return i, nil
}

func (i *identity) wake() { kube.Notify(i.changed) }

// certificate is for tls.Config.
func (i *identity) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return i.pair.Load(), nil
}

// keep follows what there is until ctx ends.
func (i *identity) keep(ctx context.Context) {
	defer func() { i.given.Stop(); i.own.Stop() }()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-i.changed:
		case <-next.C:
		}
		wait := checkEvery
		err := i.update(ctx)
		if err != nil && ctx.Err() == nil {
			i.Log.Warn("the API's certificate could not be kept as it should be; trying again", "error", err)
		}
		if err != nil || i.refused != (refusals{}) { // a right that is given back is no event
			wait = time.Minute
		}
		next.Reset(wait)
	}
}

// update brings the certificate and the credentials in line with what is known now.
func (i *identity) update(ctx context.Context) error {
	c := v1beta1.Served(kube.Cached(i.clusters.List))
	if c != nil && c.Unreadable() != nil {
		return nil //nolint:nilerr // what was there before stays in use
	}
	name := kube.SecretName(c, i.Namespace)
	secret, known, refusal := i.given.Get(name) // what was read last counts
	if isNew(refusal, &i.refused.given) {
		i.Log.Warn("the secret of spec.secretRef may not be read, so the API admits no user, or the last that is known: grant the controller the verbs get, list and watch for it by a Role in its namespace",
			"secret", name.String(), "error", refusal)
	}
	i.access.Store(letIn(c, secret, known, refusal))
	switch {
	case !known:
		return nil // the secret may have a pair, which takes precedence
	case secret == nil || len(secret.Data[core.TLSCertKey])+len(secret.Data[core.TLSPrivateKeyKey]) == 0:
		return i.keepOwn(ctx, c)
	}
	if err := i.use(secret.Data); err != nil {
		return fmt.Errorf("secret %s: %w", name, err)
	}
	return nil
}

// use shows the pair of a secret from now on. An invalid pair leaves the previous one in use.
func (i *identity) use(data map[string][]byte) error {
	pair, err := tls.X509KeyPair(data[core.TLSCertKey], data[core.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("its keys %s and %s are no pair: %w", core.TLSCertKey, core.TLSPrivateKeyKey, err)
	}
	i.pair.Store(&pair)
	return nil
}

func letIn(c *v1beta1.StorageCluster, secret *core.Secret, known bool, refusal error) *access {
	switch {
	case c == nil:
		return &access{why: "There is no StorageCluster, so no user is admitted: kubectl apply one."}
	case c.Spec.SecretRef == nil:
		return &access{why: fmt.Sprintf("No user is admitted, since StorageCluster %s has no spec.secretRef: name there a secret with the keys %s and %s.", c.Name, userKey, passwordKey)}
	case !known && refusal != nil:
		return &access{why: fmt.Sprintf("No user is admitted yet: the controller may not read the secret of spec.secretRef of StorageCluster %s. Its log says what to do.", c.Name)}
	case !known:
		return &access{why: fmt.Sprintf("No user is admitted yet: the secret of spec.secretRef of StorageCluster %s could not be read so far.", c.Name)}
	case secret == nil:
		return &access{why: fmt.Sprintf("No user is admitted, since the secret of spec.secretRef of StorageCluster %s does not exist: make it, with the keys %s and %s.", c.Name, userKey, passwordKey)}
	case len(secret.Data[userKey]) == 0 || len(secret.Data[passwordKey]) == 0:
		return &access{why: fmt.Sprintf("No user is admitted, since the secret of spec.secretRef of StorageCluster %s lacks %s or %s: add both.", c.Name, userKey, passwordKey)}
	}
	return &access{credentials: newCredentials(string(secret.Data[userKey]), string(secret.Data[passwordKey]))}
}
