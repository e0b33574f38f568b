"""Asks for models and adapters at one address, with OpenAI's client: `python examples/ask_models.py URL MODEL…`.

The variable GATEWAY_API_KEY has the key of the gateway.
"""

from __future__ import annotations

import os
import sys

import openai


def main() -> None:
    """Prints the answer of each model."""
    url, *models = sys.argv[1:]
    with openai.OpenAI(base_url=url, api_key=os.environ["GATEWAY_API_KEY"]) as client:
        for model in models:
            question = "How many moons does Jupiter have?"
            answer = client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": question}], max_tokens=32
            )
            print(f"{answer.model}: {answer.choices[0].message.content}")


if __name__ == "__main__":
    main()
