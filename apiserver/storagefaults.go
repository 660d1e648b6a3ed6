// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What etcd says, within the messages of the library's 500s. Source: go.etcd.io/etcd, api/v3rpc/rpctypes/error.go.
const (
	etcdWords     = "etcdserver: "
	etcdNoSpace   = etcdWords + "mvcc: database space exceeded"
	etcdTooLarge  = etcdWords + "request is too large"
	etcdTooMany   = etcdWords + "too many requests"
	etcdCorrupt   = etcdWords + "corrupt cluster"
	etcdDenied    = etcdWords + "permission denied"
	etcdCompacted = etcdWords + "mvcc: required revision has been compacted"
)

// notReached are what gRPC says when it has lost etcd or can't find it. Source: google.golang.org/grpc, codes and status.
var notReached = []string{"code = Unavailable", "code = DeadlineExceeded", "code = Canceled"}

// storageFault explains to people what etcd couldn't do; nil if the message isn't about etcd. They are 503s, and without
// Retry-After: clients that repeat a change by themselves couldn't tell whether the first attempt was stored.
func storageFault(req *http.Request, message string) *apierrors.StatusError {
	switch {
	case strings.Contains(message, etcdNoSpace):
		return apierrors.NewServiceUnavailable(fmt.Sprintf("etcd has no space left and refuses changes; nothing was changed. "+
			"Reading and deleting still work. Compact and defragment etcd, then disarm its alarm NOSPACE (%s)", message))
	case strings.Contains(message, etcdTooLarge):
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: fmt.Sprintf("the object is larger than etcd stores (1.5 MiB, unless its --max-request-bytes says otherwise); nothing was changed. Make it smaller, or split it (%s)", message),
		}}
	case strings.Contains(message, etcdTooMany):
		return apierrors.NewServiceUnavailable(fmt.Sprintf("etcd is overloaded and refused the request; nothing was changed. Try again later (%s)", message))
	case strings.Contains(message, etcdCorrupt):
		return apierrors.NewServiceUnavailable(fmt.Sprintf("etcd has found that its members differ (alarm CORRUPT) and refuses everything; nothing was changed. Replace the member that differs (%s)", message))
	case strings.Contains(message, etcdDenied), strings.Contains(message, etcdCompacted):
		return nil // a mistake of whoever runs this server, or the library's own business
	case strings.Contains(message, etcdWords), isNotReached(message):
		return apierrors.NewServiceUnavailable(fmt.Sprintf("etcd doesn't answer as it should; %s (%s)", outcome(req), message))
	}
	return nil
}

func isNotReached(message string) bool {
	_, words, found := strings.Cut(message, "rpc error: ")
	if !found {
		return false
	}
	for _, code := range notReached {
		if strings.HasPrefix(words, code) {
			return true
		}
	}
	return false
}

// outcome is what a client knows of its request when etcd didn't answer.
func outcome(req *http.Request) string {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return "try again"
	}
	return "whether the change was stored isn't known: read the object before you try again"
}
