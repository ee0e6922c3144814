package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/holdfast-storage/holdfast/nodeops"
	"github.com/holdfast-storage/holdfast/transfer/protocol"
)

// terminationLog is a file that the kubelet mounts into a container, and whose content it puts into the pod's status.
const terminationLog = "/dev/termination-log"

// mostMessage is how much of terminationLog the kubelet reads.
const mostMessage = 4096

// writeResult writes into an existing file, which may be a mount, and cannot be replaced.
func writeResult(path string, content nodeops.Content, failure error) error {
	if path == "" {
		if _, err := os.Stat(terminationLog); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		path = terminationLog
	}
	var text []byte
	if failure != nil {
		text = []byte(failure.Error())
		text = bytes.ToValidUTF8(text[:min(len(text), mostMessage)], nil)
	} else {
		line, err := json.Marshal(protocol.Result(content))
		if err != nil {
			return err
		}
		text = line
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// printableError is an error with names of files that a user chose. They may have bytes that change what a terminal
// shows, or that look like another line of a log.
type printableError struct{ error }

func (e *printableError) Unwrap() error { return e.error }

func (e *printableError) Error() string {
	quoted := strconv.Quote(e.error.Error())
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted[1 : len(quoted)-1])
}
