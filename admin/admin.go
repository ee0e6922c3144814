// Package admin has the commands of an administrator for the volumes of a cluster: list them, restore them from the
// trash, delete them, and adopt those without a claim.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	holdfast "github.com/holdfast-storage/holdfast/api/client/clientset"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/printable"
)

const (
	// DefaultTimeout is how long a command waits until its request is fulfilled.
	DefaultTimeout = 2 * time.Minute
	// DefaultTrashWait is how long a command waits until the agent reports a deleted volume in its trash.
	DefaultTrashWait = 10 * time.Second
	// DefaultGoneWait is how long a command watches whether a deleted object is written again, unless the trash has it.
	DefaultGoneWait = 5 * time.Second

	fieldManager = "holdfast-admin"
)

// Clients are the clients of a command.
type Clients struct {
	Holdfast   holdfast.Interface
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	// Controller impersonates the account of the controller: no other account may request that data is removed or
	// restored.
	Controller holdfast.Interface
	// Account is that account, for messages.
	Account Account
}

// Account is a ServiceAccount.
type Account struct{ Namespace, Name string }

func (a Account) String() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Connect creates the clients of a user for an installation in a namespace.
func Connect(config *rest.Config, namespace string) (c Clients, err error) {
	c.Account = Account{namespace, v1beta1.ControllerName}
	if c.Holdfast, err = holdfast.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Dynamic, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: c.Account.String()}
	c.Controller, err = holdfast.NewForConfig(config)
	return c, err
}

// Config configures an Admin.
type Config struct {
	Clients
	// Out receives the results.
	Out io.Writer
	// Progress shows what the command waits for, whenever that changes. Nil: it is printed to Out.
	Progress func(state string) error
	// Confirm asks a question and returns the line that the user types. Nil: there is no terminal.
	Confirm func(ctx context.Context, question string) (string, error)
	// Timeout, TrashWait and GoneWait are the defaults if 0.
	Timeout, TrashWait, GoneWait time.Duration
}

// Admin executes commands.
type Admin struct{ Config }

// New validates the configuration.
func New(c Config) (*Admin, error) {
	if c.Holdfast == nil || c.Kubernetes == nil || c.Dynamic == nil || c.Controller == nil || c.Out == nil {
		return nil, errors.New("a client or the output is missing")
	}
	if c.Timeout < 0 {
		return nil, fmt.Errorf("the timeout is %s; it must be above 0, such as 2m", c.Timeout)
	}
	if c.Progress == nil {
		c.Progress = func(state string) error {
			_, err := fmt.Fprintln(c.Out, state)
			return err
		}
	}
	c.Timeout, c.TrashWait = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.TrashWait, DefaultTrashWait)
	c.GoneWait = cmp.Or(c.GoneWait, DefaultGoneWait)
	return &Admin{c}, nil
}

// sayf prints to a terminal, and some of args are text of others.
func (a *Admin) sayf(format string, args ...any) error {
	_, err := io.WriteString(a.Out, printable.Lines(fmt.Sprintf(format+"\n", args...)))
	return err
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

func checkName(kind, name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%s %.80q: a name is 1 to 63 of a-z, 0-9 and -, and does not begin with -", kind, name)
	}
	return nil
}
