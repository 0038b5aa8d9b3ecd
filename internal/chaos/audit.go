package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rota-dev/rota/internal/check"
)

// auditTail reads an audit log on from where it was read last.
type auditTail struct {
	path   string
	offset int64
}

// read adds what has been written since to a log. A last line without end is left for later.
func (t *auditTail) read(log *check.Log, rota string) error {
	file, err := os.Open(t.path)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	_, err = file.Seek(t.offset, io.SeekStart)
	text, readErr := io.ReadAll(file)
	if err := errors.Join(err, readErr, file.Close()); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	t.offset += int64(len(text))
	return log.ReadAudit(bytes.NewReader(text), types.NamespacedName{Namespace: rotaNamespace, Name: rota})
}
