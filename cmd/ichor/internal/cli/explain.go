// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// apiService is the object that says whether the aggregated API is there.
const apiService = "v1alpha1." + v1alpha1.GroupName

// Explain turns an error into lines for people: the first says what and why, further ones list each faulty field.
func Explain(err error) []string {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var lines []string
		for _, one := range joined.Unwrap() {
			lines = append(lines, Explain(one)...)
		}
		return lines
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return explainStatus(err, status.Status())
	}
	var connection *url.Error
	if errors.As(err, &connection) {
		return []string{explainConnection(connection)}
	}
	if clientcmd.IsEmptyConfig(err) {
		return []string{"no cluster to talk to: no kubeconfig was found; name one with --kubeconfig, or set KUBECONFIG"}
	}
	return []string{oneLine(err.Error())}
}

func explainStatus(err error, status metav1.Status) []string {
	prefix := strings.TrimSuffix(err.Error(), status.Message)
	switch {
	case apierrors.IsInvalid(err) && status.Details != nil && len(status.Details.Causes) > 0:
		return explainCauses(prefix, status)
	case apierrors.IsUnauthorized(err):
		return []string{prefix + "not signed in: the server doesn't accept these credentials; check the user of your kubeconfig's context"}
	case apierrors.IsServiceUnavailable(err):
		return []string{fmt.Sprintf("%sIchor's API is not available just now (%s); `kubectl get apiservice %s` tells why", prefix, oneLine(status.Message), apiService)}
	case apierrors.IsNotFound(err) && (status.Details == nil || status.Details.Name == ""):
		return []string{fmt.Sprintf("%sthis cluster doesn't serve %s: Ichor isn't installed, or you are on another cluster; `kubectl get apiservice %s` tells", prefix, v1alpha1.SchemeGroupVersion, apiService)}
	default:
		return []string{oneLine(err.Error())}
	}
}

// explainCauses prints a refusal field by field. The message of the status repeats all causes on one line, so it is left
// out.
func explainCauses(prefix string, status metav1.Status) []string {
	what := strings.ToLower(status.Details.Kind)
	if status.Details.Name != "" {
		what = fmt.Sprintf("%s %q", what, status.Details.Name)
	}
	lines := []string{fmt.Sprintf("%s%s was refused, nothing is stored:", prefix, what)}
	for _, cause := range status.Details.Causes {
		lines = append(lines, fmt.Sprintf("  %s: %s", cause.Field, oneLine(cause.Message)))
	}
	return lines
}

func explainConnection(err *url.Error) string {
	where := err.URL
	if parsed, parseErr := url.Parse(err.URL); parseErr == nil {
		where = parsed.Host
	}
	cause := err.Err
	var operation *net.OpError
	if errors.As(err.Err, &operation) {
		cause = operation.Err
	}
	return fmt.Sprintf("the Kubernetes API at %s doesn't answer: %s; check the server of your kubeconfig's context", where, oneLine(cause.Error()))
}

func oneLine(text string) string {
	return strings.Join(strings.Fields(text), " ")
}
