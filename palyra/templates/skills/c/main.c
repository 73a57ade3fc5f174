/* The kind "command": a WASI program that reads its input from standard input and writes its output
 * to standard output.
 *
 * Input:  {"tool":"count","arguments":{"text":"two words"}}
 * Output: {"result":{"words":2,"lines":1}}
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static char input[1 << 20];

/* The character that `\x` stands for; what is not white space counts as a letter here. */
static char unescape(char letter) {
  return letter == 'n' || letter == 'r' || letter == 't' || letter == 'f' ? '\n' : 'x';
}

int main(void) {
  size_t size = fread(input, 1, sizeof input - 1, stdin);
  input[size] = '\0';
  const char *at = strstr(input, "\"text\":\"");
  if (at == NULL) {
    puts("{\"error\":\"text is missing\"}");
    return 0;
  }
  int words = 0, lines = 1, in_word = 0;
  for (at += strlen("\"text\":\""); *at != '\0' && *at != '"'; at++) {
    int is_newline = at[0] == '\\' && at[1] == 'n';
    char letter = *at == '\\' ? unescape(*++at) : *at;
    lines += is_newline;
    words += !in_word && !isspace((unsigned char)letter);
    in_word = !isspace((unsigned char)letter);
  }
  printf("{\"result\":{\"words\":%d,\"lines\":%d}}\n", words, lines);
  return 0;
}
